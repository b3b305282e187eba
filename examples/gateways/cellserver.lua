-- The action limit asks cellserver about a request. It sets txn.decision to the status of the answer, and
-- other variables to the fields for the response. Without an answer, it sets nothing.
local fields = { "retry-after", "ratelimit-policy", "ratelimit" }

core.register_action("limit", { "http-req" }, function(txn)
  local sent = { ["x-forwarded-for"] = { txn.f:src() } }
  sent["x-api-key"] = txn.http:req_get_headers()["x-api-key"]
  local answer = core.httpclient():get({
    url = "http://127.0.0.1:8091/v1/auth/key,address", headers = sent, timeout = 200
  })
  local headers = answer.headers or {}
  for _, name in ipairs(fields) do
    if headers[name] then txn:set_var("txn." .. name:gsub("-", "_"), headers[name][0]) end
  end
  -- A 503 without this field, and a 504, are of HAProxy: cellserver has not answered.
  if headers["x-cellserver-error"] or answer.status and answer.status < 500 then
    txn:set_var("txn.decision", answer.status)
  end
end, 0)
