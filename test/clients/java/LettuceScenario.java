import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisException;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.ArrayOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import io.lettuce.core.protocol.ProtocolVersion;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

public class LettuceScenario {
    static final ProtocolKeyword THROTTLE = () -> "CL.THROTTLE".getBytes();
    static final RedisClient CLIENT = RedisClient.create();

    static StatefulRedisConnection<String, String> open(int db) {
        return CLIENT.connect(RedisURI.builder().withHost("127.0.0.1").withPort(Scenario.PORT).withDatabase(db).build());
    }

    static RedisFuture<List<Object>> throttle(StatefulRedisConnection<String, String> redis, String key, Object... limit) {
        var args = new CommandArgs<>(StringCodec.UTF8).addKey(key);
        for (var word : limit) args.add(word.toString());
        return redis.async().dispatch(THROTTLE, new ArrayOutput<>(StringCodec.UTF8), args);
    }

    public static void main(String[] args) throws Exception {
        Scenario.client("lettuce", RedisClient.class);
        if (!Scenario.PROTOCOL.isEmpty()) {
            CLIENT.setOptions(ClientOptions.builder().protocolVersion(ProtocolVersion.valueOf("RESP" + Scenario.PROTOCOL)).build());
        }
        var redis = open(0);
        var sync = redis.sync();
        Scenario.same(Scenario.FRESH, throttle(redis, "user123", 15, 30, 60, 1).get(10, TimeUnit.SECONDS));
        Scenario.ok("throttle dispatch");

        Scenario.same(1L, sync.incr("n"));
        Scenario.same(2L, sync.incr("n"));
        Scenario.same(true, sync.expire("n", 100));
        long ttl = sync.ttl("n");
        Scenario.same(true, ttl > 50 && ttl <= 100);
        Scenario.ok("counters");

        redis.setAutoFlushCommands(false);
        var replies = new ArrayList<RedisFuture<List<Object>>>();
        for (int i = 0; i < 10; i++) replies.add(throttle(redis, "pipe", 99, 1, 1000, 1));
        redis.flushCommands();
        redis.setAutoFlushCommands(true);
        for (int i = 0; i < 10; i++) Scenario.same(99L - i, replies.get(i).get(10, TimeUnit.SECONDS).get(2));
        Scenario.ok("pipeline");

        sync.multi();
        sync.incr("n");
        throttle(redis, "tx", 15, 30, 60, 1);
        Scenario.same(List.of(3L, Scenario.FRESH), sync.exec().stream().toList());
        Scenario.ok("transaction");

        var wrong = Scenario.refused(RedisCommandExecutionException.class, () -> sync.incr("pipe"));
        Scenario.same("WRONGTYPE", wrong.split(" ")[0]);
        var refused = throttle(redis, "k", 15, 30, "x");
        refused.await(10, TimeUnit.SECONDS);
        Scenario.same("ERR value is not an integer or out of range: period (units are ms, s, m, h and d)", refused.getError());
        Scenario.ok("errors");

        var two = open(2);
        Scenario.same(0L, two.sync().exists("n"));
        Scenario.same(1L, two.sync().incr("n"));
        Scenario.same("3", sync.get("n"));
        two.close();
        Scenario.ok("database");

        Scenario.restart(RedisException.class, () -> throttle(redis, "user123", 15, 30, 60, 1).get(10, TimeUnit.SECONDS));
        CLIENT.shutdown();
    }
}
