import java.time.Duration;
import java.util.List;
import org.redisson.Redisson;
import org.redisson.api.BatchOptions;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;
import org.redisson.client.codec.LongCodec;
import org.redisson.client.codec.StringCodec;
import org.redisson.client.protocol.RedisCommand;
import org.redisson.client.protocol.RedisCommands;
import org.redisson.client.protocol.decoder.ObjectListReplayDecoder;
import org.redisson.command.CommandAsyncExecutor;
import org.redisson.command.CommandBatchService;
import org.redisson.config.Config;
import org.redisson.config.Protocol;

/** Redisson, without what it does in Lua. It has no public call for a command of one's own: its executor's is used. */
public class RedissonStory {
    static final RedisCommand<List<Object>> THROTTLE = new RedisCommand<>("CL.THROTTLE", new ObjectListReplayDecoder<Object>());

    static RedissonClient open(int db) { return open(db, true); }

    static RedissonClient open(int db, boolean scriptCache) {
        var config = new Config().setUseScriptCache(scriptCache);
        if (!Story.PROTOCOL.isEmpty()) config.setProtocol(Protocol.valueOf("RESP" + Story.PROTOCOL));
        config.useSingleServer().setAddress("redis://127.0.0.1:" + Story.PORT).setDatabase(db);
        return Redisson.create(config);
    }

    static List<Object> throttle(CommandAsyncExecutor executor, String key, Object... limit) {
        var args = new Object[limit.length + 1];
        args[0] = key;
        System.arraycopy(limit, 0, args, 1, limit.length);
        return executor.get(executor.writeAsync(key, StringCodec.INSTANCE, THROTTLE, args));
    }

    public static void main(String[] args) throws Exception {
        Story.client("redisson", Redisson.class);
        var redis = open(0);
        var executor = ((Redisson) redis).getCommandExecutor();
        Story.same(Story.FRESH, throttle(executor, "user123", 15, 30, 60, 1));
        Story.ok("throttle writeAsync");

        var n = redis.getAtomicLong("n");
        Story.same(1L, n.incrementAndGet());
        Story.same(2L, n.incrementAndGet());
        Story.same(true, executor.get(executor.writeAsync("n", LongCodec.INSTANCE, RedisCommands.PEXPIRE, "n", 100_000))); // n.expire is in Lua
        long ttl = n.remainTimeToLive();
        Story.same(true, ttl > 50_000 && ttl <= 100_000);
        Story.ok("counters");

        var pipe = new CommandBatchService(executor, BatchOptions.defaults());
        for (int i = 0; i < 10; i++) pipe.writeAsync("pipe", StringCodec.INSTANCE, THROTTLE, "pipe", 99, 1, 1000, 1);
        var replies = pipe.execute().getResponses();
        for (int i = 0; i < 10; i++) Story.same(99L - i, ((List<?>) replies.get(i)).get(2));
        Story.ok("pipeline");

        var tx = new CommandBatchService(executor, BatchOptions.defaults().executionMode(BatchOptions.ExecutionMode.IN_MEMORY_ATOMIC));
        tx.writeAsync("n", LongCodec.INSTANCE, RedisCommands.INCR, "n");
        tx.writeAsync("tx", StringCodec.INSTANCE, THROTTLE, "tx", 15, 30, 60, 1);
        Story.same(List.of(3L, Story.FRESH), tx.execute().getResponses());
        Story.ok("transaction");

        var wrong = Story.refused(RedisException.class, () -> redis.getAtomicLong("pipe").incrementAndGet());
        Story.same("WRONGTYPE", wrong.split(" ")[0]);
        wrong = Story.refused(RedisException.class, () -> throttle(executor, "k", 15, 30, "x"));
        Story.same("ERR value is not an integer or out of range", wrong.split("\\. channel")[0]);
        Story.ok("errors");

        var lua = open(0, false); // else it would send EVALSHA for ever
        wrong = Story.refused(RedisException.class, () -> lua.getAtomicLong("n").expire(Duration.ofSeconds(100)));
        Story.same("ERR unknown command 'EVAL',", wrong.split(" with")[0]);
        var bucket = lua.getBucket("bucket", StringCodec.INSTANCE);
        bucket.set("value", Duration.ofSeconds(100));
        Story.same("value", bucket.getAndExpire(Duration.ofSeconds(50)));
        ttl = bucket.remainTimeToLive();
        Story.same(true, ttl > 25_000 && ttl <= 50_000);
        lua.shutdown();

        var two = open(2);
        Story.same(false, two.getAtomicLong("n").isExists());
        Story.same(1L, two.getAtomicLong("n").incrementAndGet());
        Story.same(3L, n.get());
        two.shutdown();
        Story.ok("database");

        Story.restart(RedisException.class, () -> throttle(executor, "user123", 15, 30, 60, 1));
        redis.shutdown();
    }
}
