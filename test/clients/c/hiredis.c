// Plays the scenario with hiredis.
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SAME(want, got) do { if ((want) != (got)) { fprintf(stderr, "%s:%d: unexpected value: %s\n", __FILE__, __LINE__, #got); exit(1); } } while (0)
#define THROTTLE "CL.THROTTLE %s 15 30 60 1"

static void ok(const char *feature) { printf("ok %s\n", feature); }

static redisContext *connect_to(int db) {
    redisContext *c = redisConnect("127.0.0.1", atoi(getenv("PORT")));
    SAME(0, c->err);
    freeReplyObject(redisCommand(c, "SELECT %d", db));
    return c;
}

// is_fresh reports whether a reply is that of the first decision about a key.
static int is_fresh(const redisReply *r) {
    const long long want[] = {0, 16, 15, -1, 2};
    int same = r && r->type == REDIS_REPLY_ARRAY && r->elements == 5;
    for (int i = 0; same && i < 5; i++) same = r->element[i]->type == REDIS_REPLY_INTEGER && r->element[i]->integer == want[i];
    return same;
}

static long long integer(redisContext *c, const char *call) {
    redisReply *r = redisCommand(c, call);
    SAME(REDIS_REPLY_INTEGER, r->type);
    long long integer = r->integer;
    freeReplyObject(r);
    return integer;
}

static int refused(redisContext *c, const char *call, const char *text) {
    redisReply *r = redisCommand(c, call);
    int so = r->type == REDIS_REPLY_ERROR && !strncmp(r->str, text, strlen(text));
    freeReplyObject(r);
    return so;
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("client hiredis %d.%d.%d\n", HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
    redisContext *c = connect_to(0);
    SAME(1, is_fresh(redisCommand(c, THROTTLE, "user123")));
    ok("throttle redisCommand");

    SAME(1, integer(c, "INCR n"));
    SAME(2, integer(c, "INCR n"));
    SAME(1, integer(c, "EXPIRE n 100"));
    long long ttl = integer(c, "TTL n");
    SAME(1, ttl > 50 && ttl <= 100);
    ok("counters");

    redisReply *r;
    for (int i = 0; i < 10; i++) redisAppendCommand(c, "CL.THROTTLE pipe 99 1 1000 1");
    for (int i = 0; i < 10; i++) {
        SAME(REDIS_OK, redisGetReply(c, (void **)&r));
        SAME(99 - i, r->element[2]->integer);
        freeReplyObject(r);
    }
    ok("pipeline");

    freeReplyObject(redisCommand(c, "MULTI"));
    freeReplyObject(redisCommand(c, "INCR n"));
    freeReplyObject(redisCommand(c, THROTTLE, "tx"));
    r = redisCommand(c, "EXEC");
    SAME(3, r->element[0]->integer);
    SAME(1, is_fresh(r->element[1]));
    ok("transaction");

    SAME(1, refused(c, "INCR pipe", "WRONGTYPE "));
    SAME(1, refused(c, "CL.THROTTLE k 15 30 x", "ERR value is not an integer or out of range: period (units are ms, s, m, h and d)"));
    ok("errors");

    redisContext *two = connect_to(2);
    SAME(0, integer(two, "EXISTS n"));
    SAME(1, integer(two, "INCR n"));
    SAME(4, integer(c, "INCR n"));
    redisFree(two);
    ok("database");

    puts("restart");
    getchar();
    int failed = 0;
    while (!(r = redisCommand(c, THROTTLE, "user123"))) { // hiredis connects again only on request
        SAME(1, failed++ < 100);
        usleep(50000);
        redisReconnect(c);
    }
    SAME(1, is_fresh(r));
    ok(failed ? "restart after an error" : "restart");
}
