//! Plays the scenario with redis-rs and a plain connection.
use redis::{Client, Cmd, Commands, Connection, RedisError, RedisResult, cmd, pipe};
use std::{env::var, io::stdin, thread::sleep, time::Duration};

const FRESH: [i64; 5] = [0, 16, 15, -1, 2];

fn ok(feature: &str) {
    println!("ok {feature}");
}

fn client(db: u8) -> Client {
    let protocol = var("PROTOCOL").unwrap_or_default();
    let asked = if protocol.is_empty() { String::new() } else { format!("?protocol={protocol}") };
    Client::open(format!("redis://127.0.0.1:{}/{db}{asked}", var("PORT").unwrap())).unwrap()
}

fn limit(key: &str) -> Cmd {
    let mut call = cmd("CL.THROTTLE");
    call.arg(key).arg(15).arg(30).arg(60).arg(1);
    call
}

fn refused<T>(reply: RedisResult<T>) -> RedisError {
    reply.err().expect("an error")
}

fn main() {
    println!("client redis-rs {}", var("VERSION").unwrap());
    let mut con: Connection = client(0).get_connection().unwrap();
    assert_eq!(limit("user123").query::<[i64; 5]>(&mut con).unwrap(), FRESH);
    ok("throttle cmd");

    assert_eq!(con.incr::<_, _, i64>("n", 1).unwrap(), 1);
    assert_eq!(con.incr::<_, _, i64>("n", 1).unwrap(), 2);
    assert!(con.expire::<_, bool>("n", 100).unwrap());
    assert!((51..=100).contains(&con.ttl::<_, i64>("n").unwrap()));
    ok("counters");

    let mut calls = pipe();
    for _ in 0..10 {
        calls.cmd("CL.THROTTLE").arg("pipe").arg(99).arg(1).arg(1000).arg(1);
    }
    let replies: Vec<[i64; 5]> = calls.query(&mut con).unwrap();
    assert_eq!(replies.iter().map(|r| r[2]).collect::<Vec<_>>(), (90..100).rev().collect::<Vec<_>>());
    ok("pipeline");

    let replies: (i64, [i64; 5]) = pipe().atomic().incr("n", 1).add_command(limit("tx")).query(&mut con).unwrap();
    assert_eq!(replies, (3, FRESH));
    ok("transaction");

    assert_eq!(refused(con.incr::<_, _, i64>("pipe", 1)).code(), Some("WRONGTYPE"));
    let wrong = refused(cmd("CL.THROTTLE").arg("k").arg(15).arg(30).arg("x").query::<[i64; 5]>(&mut con));
    assert_eq!((wrong.code(), wrong.detail()), (Some("ERR"), Some("value is not an integer or out of range: period (units are ms, s, m, h and d)")));
    ok("errors");

    let mut two = client(2).get_connection().unwrap();
    assert!(!two.exists::<_, bool>("n").unwrap());
    assert_eq!(two.incr::<_, _, i64>("n", 1).unwrap(), 1);
    assert_eq!(con.get::<_, i64>("n").unwrap(), 3);
    ok("database");

    println!("restart");
    stdin().read_line(&mut String::new()).unwrap();
    let mut failed = 0;
    loop {
        match limit("user123").query::<[i64; 5]>(&mut con) {
            Ok(reply) => break assert_eq!(reply, FRESH),
            Err(e) => assert!(e.is_io_error() && failed < 100, "{e}"),
        }
        failed += 1;
        sleep(Duration::from_millis(50));
        con = client(0).get_connection().unwrap_or(con); // a plain connection does not connect again by itself
    }
    ok(if failed > 0 { "restart after an error" } else { "restart" });
}
