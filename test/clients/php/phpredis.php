<?php
// Plays the scenario with phpredis.
require 'scenario.php';

function open(int $db): Redis {
    $redis = new Redis();
    $redis->connect('127.0.0.1', (int) getenv('PORT'));
    same(true, $redis->select($db));
    return $redis;
}

echo 'client phpredis ', phpversion('redis'), "\n";
$redis = open(0);
$throttle = fn () => $redis->rawCommand('CL.THROTTLE', 'user123', 15, 30, 60, 1);
same([0, 16, 15, -1, 2], $throttle());
ok('throttle rawCommand');

same(1, $redis->incr('n'));
same(2, $redis->incr('n'));
same(true, $redis->expire('n', 100));
$ttl = $redis->ttl('n');
same(true, $ttl > 50 && $ttl <= 100);
ok('counters');

$pipe = $redis->pipeline();
for ($i = 0; $i < 10; $i++) {
    $pipe->rawCommand('CL.THROTTLE', 'pipe', 99, 1, 1000, 1);
}
foreach ($pipe->exec() as $i => $reply) {
    same([0, 100, 99 - $i], array_slice($reply, 0, 3));
}
ok('pipeline');

same([3, [0, 16, 15, -1, 2]], $redis->multi()->incr('n')->rawCommand('CL.THROTTLE', 'tx', 15, 30, 60, 1)->exec());
ok('transaction');

same(false, $redis->incr('pipe')); // phpredis returns false instead of throwing these errors
same('WRONGTYPE ', substr($redis->getLastError(), 0, 10));
same(false, $redis->rawCommand('CL.THROTTLE', 'k', 15, 30, 'x'));
same('ERR value is not an integer or out of range: period (units are ms, s, m, h and d)', $redis->getLastError());
ok('errors');

$two = open(2);
same(0, $two->exists('n'));
same(1, $two->incr('n'));
same('3', $redis->get('n'));
$two->close();
ok('database');

restart($throttle);
