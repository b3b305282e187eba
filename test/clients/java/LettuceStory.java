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

public class LettuceStory {
    static final ProtocolKeyword THROTTLE = () -> "CL.THROTTLE".getBytes();
    static final RedisClient CLIENT = RedisClient.create();

    static StatefulRedisConnection<String, String> open(int db) {
        return CLIENT.connect(RedisURI.builder().withHost("127.0.0.1").withPort(Story.PORT).withDatabase(db).build());
    }

    static RedisFuture<List<Object>> throttle(StatefulRedisConnection<String, String> redis, String key, Object... limit) {
        var args = new CommandArgs<>(StringCodec.UTF8).addKey(key);
        for (var word : limit) args.add(word.toString());
        return redis.async().dispatch(THROTTLE, new ArrayOutput<>(StringCodec.UTF8), args);
    }

    public static void main(String[] args) throws Exception {
        Story.client("lettuce", RedisClient.class);
        if (!Story.PROTOCOL.isEmpty()) {
            CLIENT.setOptions(ClientOptions.builder().protocolVersion(ProtocolVersion.valueOf("RESP" + Story.PROTOCOL)).build());
        }
        var redis = open(0);
        var sync = redis.sync();
        Story.same(Story.FRESH, throttle(redis, "user123", 15, 30, 60, 1).get(10, TimeUnit.SECONDS));
        Story.ok("throttle dispatch");

        Story.same(1L, sync.incr("n"));
        Story.same(2L, sync.incr("n"));
        Story.same(true, sync.expire("n", 100));
        long ttl = sync.ttl("n");
        Story.same(true, ttl > 50 && ttl <= 100);
        Story.ok("counters");

        redis.setAutoFlushCommands(false);
        var replies = new ArrayList<RedisFuture<List<Object>>>();
        for (int i = 0; i < 10; i++) replies.add(throttle(redis, "pipe", 99, 1, 1000, 1));
        redis.flushCommands();
        redis.setAutoFlushCommands(true);
        for (int i = 0; i < 10; i++) Story.same(99L - i, replies.get(i).get(10, TimeUnit.SECONDS).get(2));
        Story.ok("pipeline");

        sync.multi();
        sync.incr("n");
        throttle(redis, "tx", 15, 30, 60, 1);
        Story.same(List.of(3L, Story.FRESH), sync.exec().stream().toList());
        Story.ok("transaction");

        var wrong = Story.refused(RedisCommandExecutionException.class, () -> sync.incr("pipe"));
        Story.same("WRONGTYPE", wrong.split(" ")[0]);
        var refused = throttle(redis, "k", 15, 30, "x");
        refused.await(10, TimeUnit.SECONDS);
        Story.same("ERR value is not an integer or out of range", refused.getError());
        Story.ok("errors");

        var two = open(2);
        Story.same(0L, two.sync().exists("n"));
        Story.same(1L, two.sync().incr("n"));
        Story.same("3", sync.get("n"));
        two.close();
        Story.ok("database");

        Story.restart(RedisException.class, () -> throttle(redis, "user123", 15, 30, 60, 1).get(10, TimeUnit.SECONDS));
        CLIENT.shutdown();
    }
}
