<?php
// What the PHP programs share: how they report to test/clients/run.sh.
function ok(string $feature): void { echo "ok $feature\n"; }

function same($want, $got): void {
    if ($want !== $got) {
        fwrite(STDERR, 'got ' . var_export($got, true) . ', want ' . var_export($want, true) . "\n");
        exit(1);
    }
}

// restart asks run.sh to restart the server, and then calls until a call succeeds.
function restart(callable $call): void {
    echo "restart\n";
    fgets(STDIN);
    for ($failed = 0; $failed < 100; $failed++) {
        try {
            same([0, 16, 15, -1, 2], $call());
            ok($failed ? 'restart after an error' : 'restart');
            return;
        } catch (RedisException | Predis\Connection\ConnectionException $e) {
            usleep(50000);
        }
    }
    same('a new connection', 'none');
}
