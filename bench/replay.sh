#!/bin/bash
# Measures the CPU time of cellserver policies replay beside that of gawk '{print $1}', which reads the same file and does
# next to nothing with it. The file has a million lines of the combined format, 210 MB, of 20,000 clients. The programs
# take turns; the table shows the medians of user and system time, and their ratios to gawk's.
set -euo pipefail
rounds=${ROUNDS:-7}
cellserver=$PWD/bin/cellserver
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

cat >policies.yaml <<'END'
policies: {api: {from: "{client_ip}", limits: [{throttle: {burst: 20, rate: 60/1m}}]}}
END
gawk 'BEGIN {
  srand(1); now = 1790000000; agent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0"
  for (i = 0; i < 1000000; i++) {
    if (i % 50 == 0) time = strftime("%d/%b/%Y:%H:%M:%S +0000", now++, 1)
    client = int(20000 * (rand() < 0.6 ? rand() ^ 6 : rand()))
    printf "%d.%d.%d.7 - - [%s] \"GET /products/%d/reviews?page=%d HTTP/1.1\" %d %d \"https://www.example.com/shop/%d\" \"%s\"\n",
      20 + client % 97, int(client / 97) % 251, client % 239, time, rand() * 99999, rand() * 9, rand() < 0.9 ? 200 : 404,
      rand() * 60000, rand() * 999, agent
  }
}' </dev/null >access.log

# cpu NAME COMMAND...: runs a command, and notes its CPU time in seconds.
cpu() {
  local name=$1
  shift
  TIMEFORMAT='%U %S'
  { time "$@" access.log >/dev/null; } 2>&1 | gawk -v name="$name" '{ print name, $1 + $2 }' >>times
}
for ((round = 0; round < rounds; round++)); do
  cpu gawk gawk '{print $1}'
  cpu decisions "$cellserver" policies replay --table=false policies.yaml
  cpu with-table "$cellserver" policies replay policies.yaml
done

gawk -v lines="$(wc -l <access.log)" -v megabytes="$(($(stat -c %s access.log) / 1000000))" -v rounds="$rounds" '
  { seconds[$1][++count[$1]] = $2 }
  END {
    printf "%d lines, %d MB; medians of %d rounds\n%-12s %12s %14s\n", lines, megabytes, rounds, "", "CPU seconds", "times gawk"
    for (n = split("gawk decisions with-table", names); ++i <= n;) {
      asort(seconds[names[i]])
      median[i] = seconds[names[i]][int((rounds + 1) / 2)]
      printf "%-12s %12.2f %14.2f\n", names[i], median[i], median[i] / median[1]
    }
    printf "goals: decisions at most 1.2 s and 3 times gawk; the table at most 1.2 s more (%.2f)\n", median[3] - median[2]
  }' times
