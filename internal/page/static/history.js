// The history of decisions by policy. The page asks for it when it opens, and when another policy or another time is
// chosen. In between, it adds what the messages of the stream say.
"use strict";

const results = ["error", "banned", "limited", "shadow", "allowed"]; // as they are drawn, from below
const resultNames = { allowed: "allowed", limited: "limited", shadow: "shadowed", banned: "banned", error: "no decision" };
const spans = {
  SECONDS: { step: 1, points: 300, name: "the last 5 minutes", from: "5 minutes ago" },
  MINUTES: { step: 60, points: 1440, name: "the last day", from: "a day ago" },
};
let past = []; // of decisions per second by result, the latest last
let asked = 0; // how often the history was asked for
let pastAt = 0; // the time of the message before the last of these answers, in milliseconds

const spanOf = () => spans[byId("history-span").value];

// readHistory asks for the history that is chosen, unless another was chosen when the answer arrives.
async function readHistory() {
  const number = ++asked, policy = byId("history-policy").value, span = spanOf();
  try {
    const found = await post("/history", policy + " " + byId("history-span").value + " COUNT " + span.points);
    if (number !== asked) return;
    past = found.allowed.map((_, i) => Object.fromEntries(results.map((result) => [result, found[result][i] / found.step])));
    show("history-error", "");
  } catch (failure) {
    if (number !== asked) return;
    past = [];
    show("history-error", failure.message);
  }
  drawHistory();
}

function drawHistory() {
  const span = spanOf(), policy = byId("history-policy").selectedOptions[0].textContent;
  byId("history-max").textContent = count(drawAreas("history-chart", past, span.points, results)) + " per second";
  byId("history-from").textContent = span.from;
  const total = (result) => past.reduce((sum, point) => sum + point[result] * span.step, 0);
  byId("history-summary").textContent = "Decisions of " + policy + " in " + span.name + ": " +
    [...results].reverse().map((result) => count(total(result)) + " " + resultNames[result]).join(", ");
}

// showPolicies offers the policies that are counted. If the chosen one is not in force any more, all are shown.
function showPolicies(names) {
  const choice = byId("history-policy"), chosen = choice.value;
  const wanted = ["*", ...names];
  if (wanted.join(" ") === [...choice.options].map((option) => option.value).join(" ")) return;
  choice.replaceChildren(choice.options[0], ...names.map((name) => element("option", name === "_other" ? "other policies" : name, { value: name })));
  choice.value = wanted.includes(chosen) ? chosen : "*";
  if (choice.value !== chosen) readHistory();
}

// followHistory adds the decisions since the message before. It asks again when a minute is over, a minute after an
// error, and after the connection was lost.
function followHistory(m, names) {
  showPolicies(names);
  const span = spanOf(), policy = byId("history-policy").value;
  const repeats = span.step > 1 || !byId("history-error").hidden;
  if (!previous || asked === 0 || repeats && m.time - pastAt >= 60000) {
    pastAt = m.time;
    readHistory();
    return;
  }
  if (repeats) return;
  const of = policy === "*" ? names : [policy];
  past.push(Object.fromEntries(results.map((result) => [result, growth(m, (f) =>
    of.reduce((sum, name) => sum + Number(fields(f["policy_decisions_" + name])[result] || 0), 0))])));
  if (past.length > span.points) past.shift();
  drawHistory();
}

for (const id of ["history-policy", "history-span"]) document.getElementById(id).addEventListener("change", readHistory);
