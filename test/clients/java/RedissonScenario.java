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

/**
 * Plays the scenario with Redisson, without its calls that use Lua. Redisson has no public call for
 * commands that it does not know, so this uses its command executor.
 */
public class RedissonScenario {
    static final RedisCommand<List<Object>> THROTTLE = new RedisCommand<>("CL.THROTTLE", new ObjectListReplayDecoder<Object>());

    static RedissonClient open(int db) { return open(db, true); }

    static RedissonClient open(int db, boolean scriptCache) {
        var config = new Config().setUseScriptCache(scriptCache);
        if (!Scenario.PROTOCOL.isEmpty()) config.setProtocol(Protocol.valueOf("RESP" + Scenario.PROTOCOL));
        config.useSingleServer().setAddress("redis://127.0.0.1:" + Scenario.PORT).setDatabase(db);
        return Redisson.create(config);
    }

    static List<Object> throttle(CommandAsyncExecutor executor, String key, Object... limit) {
        var args = new Object[limit.length + 1];
        args[0] = key;
        System.arraycopy(limit, 0, args, 1, limit.length);
        return executor.get(executor.writeAsync(key, StringCodec.INSTANCE, THROTTLE, args));
    }

    public static void main(String[] args) throws Exception {
        Scenario.client("redisson", Redisson.class);
        var redis = open(0);
        var executor = ((Redisson) redis).getCommandExecutor();
        Scenario.same(Scenario.FRESH, throttle(executor, "user123", 15, 30, 60, 1));
        Scenario.ok("throttle writeAsync");

        var n = redis.getAtomicLong("n");
        Scenario.same(1L, n.incrementAndGet());
        Scenario.same(2L, n.incrementAndGet());
        Scenario.same(true, executor.get(executor.writeAsync("n", LongCodec.INSTANCE, RedisCommands.PEXPIRE, "n", 100_000))); // n.expire uses Lua
        long ttl = n.remainTimeToLive();
        Scenario.same(true, ttl > 50_000 && ttl <= 100_000);
        Scenario.ok("counters");

        var pipe = new CommandBatchService(executor, BatchOptions.defaults());
        for (int i = 0; i < 10; i++) pipe.writeAsync("pipe", StringCodec.INSTANCE, THROTTLE, "pipe", 99, 1, 1000, 1);
        var replies = pipe.execute().getResponses();
        for (int i = 0; i < 10; i++) Scenario.same(99L - i, ((List<?>) replies.get(i)).get(2));
        Scenario.ok("pipeline");

        var tx = new CommandBatchService(executor, BatchOptions.defaults().executionMode(BatchOptions.ExecutionMode.IN_MEMORY_ATOMIC));
        tx.writeAsync("n", LongCodec.INSTANCE, RedisCommands.INCR, "n");
        tx.writeAsync("tx", StringCodec.INSTANCE, THROTTLE, "tx", 15, 30, 60, 1);
        Scenario.same(List.of(3L, Scenario.FRESH), tx.execute().getResponses());
        Scenario.ok("transaction");

        var wrong = Scenario.refused(RedisException.class, () -> redis.getAtomicLong("pipe").incrementAndGet());
        Scenario.same("WRONGTYPE", wrong.split(" ")[0]);
        wrong = Scenario.refused(RedisException.class, () -> throttle(executor, "k", 15, 30, "x"));
        Scenario.same("ERR value is not an integer or out of range: period (units are ms, s, m, h and d)", wrong.split("\\. channel")[0]);
        Scenario.ok("errors");

        var lua = open(0, false); // with the script cache, it would send EVALSHA for ever
        wrong = Scenario.refused(RedisException.class, () -> lua.getAtomicLong("n").expire(Duration.ofSeconds(100)));
        Scenario.same("ERR unknown command 'EVAL',", wrong.split(" with")[0]);
        var bucket = lua.getBucket("bucket", StringCodec.INSTANCE);
        bucket.set("value", Duration.ofSeconds(100));
        Scenario.same("value", bucket.getAndExpire(Duration.ofSeconds(50)));
        ttl = bucket.remainTimeToLive();
        Scenario.same(true, ttl > 25_000 && ttl <= 50_000);
        lua.shutdown();

        var two = open(2);
        Scenario.same(false, two.getAtomicLong("n").isExists());
        Scenario.same(1L, two.getAtomicLong("n").incrementAndGet());
        Scenario.same(3L, n.get());
        two.shutdown();
        Scenario.ok("database");

        Scenario.restart(RedisException.class, () -> throttle(executor, "user123", 15, 30, 60, 1));
        redis.shutdown();
    }
}
