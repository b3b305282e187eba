<?php
// Plays the scenario with Predis.
require 'scenario.php';
require 'Predis/Autoloader.php';
Predis\Autoloader::register();

class Throttle extends Predis\Command\Command {
    public function getId() { return 'CL.THROTTLE'; }
}

function open(int $db): Predis\Client {
    $redis = new Predis\Client(['port' => getenv('PORT'), 'database' => $db]);
    $redis->getProfile()->defineCommand('throttle', Throttle::class);
    return $redis;
}

function refused(callable $call): Predis\Response\ServerException {
    try {
        same('an error', $call());
    } catch (Predis\Response\ServerException $e) {
        return $e;
    }
}

echo 'client predis ', Predis\Client::VERSION, "\n";
$redis = open(0);
$throttle = fn () => $redis->throttle('user123', 15, 30, 60, 1);
same([0, 16, 15, -1, 2], $throttle());
ok('throttle defineCommand');

same(1, $redis->incr('n'));
same(2, $redis->incr('n'));
same(1, $redis->expire('n', 100));
$ttl = $redis->ttl('n');
same(true, $ttl > 50 && $ttl <= 100);
ok('counters');

$replies = $redis->pipeline(function ($pipe) {
    for ($i = 0; $i < 10; $i++) {
        $pipe->throttle('pipe', 99, 1, 1000, 1);
    }
});
foreach ($replies as $i => $reply) {
    same([0, 100, 99 - $i], array_slice($reply, 0, 3));
}
ok('pipeline');

same([3, [0, 16, 15, -1, 2]], $redis->transaction(function ($tx) {
    $tx->incr('n');
    $tx->throttle('tx', 15, 30, 60, 1);
}));
ok('transaction');

same('WRONGTYPE', refused(fn () => $redis->incr('pipe'))->getErrorType());
$e = refused(fn () => $redis->throttle('k', 15, 30, 'x'));
same(['ERR', 'ERR value is not an integer or out of range: period (units are ms, s, m, h and d)'], [$e->getErrorType(), $e->getMessage()]);
ok('errors');

$two = open(2);
same(0, $two->exists('n'));
same(1, $two->incr('n'));
same('3', $redis->get('n'));
$two->disconnect();
ok('database');

restart($throttle);
