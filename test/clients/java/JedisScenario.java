import java.util.List;
import java.util.stream.IntStream;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;

public class JedisScenario {
    static final ProtocolCommand THROTTLE = () -> "CL.THROTTLE".getBytes();

    static RedisClient open(int db) {
        var config = DefaultJedisClientConfig.builder().database(db);
        if (!Scenario.PROTOCOL.isEmpty()) config.protocol(RedisProtocol.valueOf("RESP" + Scenario.PROTOCOL));
        return RedisClient.builder().hostAndPort("127.0.0.1", Scenario.PORT).clientConfig(config.build()).build();
    }

    public static void main(String[] args) throws Exception {
        Scenario.client("jedis", RedisClient.class);
        var redis = open(0);
        Scenario.same(Scenario.FRESH, redis.sendCommand(THROTTLE, "user123", "15", "30", "60", "1"));
        Scenario.ok("throttle sendCommand");

        Scenario.same(1L, redis.incr("n"));
        Scenario.same(2L, redis.incr("n"));
        Scenario.same(1L, redis.expire("n", 100));
        long ttl = redis.ttl("n");
        Scenario.same(true, ttl > 50 && ttl <= 100);
        Scenario.ok("counters");

        try (var pipe = redis.pipelined()) {
            var replies = IntStream.range(0, 10).mapToObj(i -> pipe.sendCommand(THROTTLE, "pipe", "99", "1", "1000", "1")).toList();
            pipe.sync();
            for (int i = 0; i < 10; i++) {
                Scenario.same(99L - i, ((List<?>) replies.get(i).get()).get(2));
            }
        }
        Scenario.ok("pipeline");

        try (var tx = redis.multi()) {
            tx.incr("n");
            tx.sendCommand(THROTTLE, "tx", "15", "30", "60", "1");
            Scenario.same(List.of(3L, Scenario.FRESH), tx.exec());
        }
        Scenario.ok("transaction");

        var wrong = Scenario.refused(JedisDataException.class, () -> redis.incr("pipe"));
        Scenario.same("WRONGTYPE", wrong.split(" ")[0]);
        wrong = Scenario.refused(JedisDataException.class, () -> redis.sendCommand(THROTTLE, "k", "15", "30", "x"));
        Scenario.same("ERR value is not an integer or out of range: period (units are ms, s, m, h and d)", wrong);
        Scenario.ok("errors");

        try (var two = open(2)) {
            Scenario.same(false, two.exists("n"));
            Scenario.same(1L, two.incr("n"));
            Scenario.same("3", redis.get("n"));
        }
        Scenario.ok("database");

        Scenario.restart(JedisConnectionException.class, () -> redis.sendCommand(THROTTLE, "user123", "15", "30", "60", "1"));
        redis.close();
    }
}
