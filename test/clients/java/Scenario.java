import java.util.List;
import java.util.Objects;
import java.util.concurrent.Callable;

/** What the Java programs share: how they report to test/clients/run.sh. */
class Scenario {
    static final int PORT = Integer.parseInt(System.getenv("PORT"));
    static final String PROTOCOL = System.getenv("PROTOCOL"); // empty: the client's default
    static final List<Long> FRESH = List.of(0L, 16L, 15L, -1L, 2L);

    /** Prints the name of the client, and its version, which is in the name of its jar. */
    static void client(String name, Class<?> of) {
        var jar = of.getProtectionDomain().getCodeSource().getLocation().getPath();
        System.out.println("client " + name + " " + jar.replaceFirst(".*?-(core-)?([0-9].*)\\.jar", "$2").replace(".RELEASE", ""));
    }

    static void ok(String feature) {
        System.out.println("ok " + feature);
    }

    static void same(Object want, Object got) {
        if (!Objects.equals(want, got)) {
            System.err.println("got " + got + ", want " + want);
            System.exit(1);
        }
    }

    interface Call {
        void call() throws Exception;
    }

    /** Returns the message of the error that a call throws, which must be of the given class. */
    static String refused(Class<? extends Exception> of, Call call) {
        try {
            call.call();
            return "no error";
        } catch (Exception e) {
            return of.isInstance(e) ? e.getMessage() : e.toString();
        }
    }

    /** Asks run.sh to restart the server, and then calls until a call succeeds. */
    static void restart(Class<? extends Exception> lost, Callable<?> call) throws Exception {
        System.out.println("restart");
        System.in.read();
        for (int failed = 0; failed < 100; failed++) {
            try {
                same(FRESH, call.call());
                ok(failed > 0 ? "restart after an error" : "restart");
                return;
            } catch (Exception e) {
                if (!lost.isInstance(e)) throw e;
                Thread.sleep(50);
            }
        }
        throw new AssertionError("the client does not connect again");
    }
}
