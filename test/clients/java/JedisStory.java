import java.util.List;
import java.util.stream.IntStream;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;

public class JedisStory {
    static final ProtocolCommand THROTTLE = () -> "CL.THROTTLE".getBytes();

    static RedisClient open(int db) {
        var config = DefaultJedisClientConfig.builder().database(db);
        if (!Story.PROTOCOL.isEmpty()) config.protocol(RedisProtocol.valueOf("RESP" + Story.PROTOCOL));
        return RedisClient.builder().hostAndPort("127.0.0.1", Story.PORT).clientConfig(config.build()).build();
    }

    public static void main(String[] args) throws Exception {
        Story.client("jedis", RedisClient.class);
        var redis = open(0);
        Story.same(Story.FRESH, redis.sendCommand(THROTTLE, "user123", "15", "30", "60", "1"));
        Story.ok("throttle sendCommand");

        Story.same(1L, redis.incr("n"));
        Story.same(2L, redis.incr("n"));
        Story.same(1L, redis.expire("n", 100));
        long ttl = redis.ttl("n");
        Story.same(true, ttl > 50 && ttl <= 100);
        Story.ok("counters");

        try (var pipe = redis.pipelined()) {
            var replies = IntStream.range(0, 10).mapToObj(i -> pipe.sendCommand(THROTTLE, "pipe", "99", "1", "1000", "1")).toList();
            pipe.sync();
            for (int i = 0; i < 10; i++) {
                Story.same(99L - i, ((List<?>) replies.get(i).get()).get(2));
            }
        }
        Story.ok("pipeline");

        try (var tx = redis.multi()) {
            tx.incr("n");
            tx.sendCommand(THROTTLE, "tx", "15", "30", "60", "1");
            Story.same(List.of(3L, Story.FRESH), tx.exec());
        }
        Story.ok("transaction");

        var wrong = Story.refused(JedisDataException.class, () -> redis.incr("pipe"));
        Story.same("WRONGTYPE", wrong.split(" ")[0]);
        wrong = Story.refused(JedisDataException.class, () -> redis.sendCommand(THROTTLE, "k", "15", "30", "x"));
        Story.same("ERR value is not an integer or out of range", wrong);
        Story.ok("errors");

        try (var two = open(2)) {
            Story.same(false, two.exists("n"));
            Story.same(1L, two.incr("n"));
            Story.same("3", redis.get("n"));
        }
        Story.ok("database");

        Story.restart(JedisConnectionException.class, () -> redis.sendCommand(THROTTLE, "user123", "15", "30", "60", "1"));
        redis.close();
    }
}
