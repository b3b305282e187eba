/** node-redis and ioredis, behind one interface. */

type Words = readonly string[];

/** The part of node-redis 5 and later that is used here. */
export interface NodeRedis {
  readonly isOpen: boolean;
  readonly isReady: boolean;
  sendCommand(words: string[]): Promise<unknown>;
  multi(): { addCommand(words: string[]): unknown; exec(): Promise<unknown[]> };
  duplicate(): { connect(): Promise<unknown>; sendCommand(words: string[]): Promise<unknown>; destroy(): void; on: On };
  once: Once;
}

type On = (event: "error", listener: () => void) => unknown;
type Once = (event: "ready", listener: () => void) => unknown;

/** The part of ioredis 5 and later that is used here. */
export interface IORedis {
  call(command: string, ...words: string[]): Promise<unknown>;
  pipeline(): Batch;
  multi(): Batch;
  duplicate(): { call(command: string, ...words: string[]): Promise<unknown>; disconnect(): void; on: On };
  options: { autoResendUnfulfilledCommands?: boolean };
  status: string;
  once: Once;
}

interface Batch {
  call(command: string, ...words: string[]): unknown;
  exec(): Promise<[error: Error | null, result: unknown][] | null>;
}

export type Client = NodeRedis | IORedis;

/** Sends calls. */
export interface Sender {
  readonly repeats: boolean; // by itself, so that calls need an ID
  /** Waits while the client connects again. The client would keep a call, and send it even after its timeout. */
  ready(): Promise<void> | undefined;
  send(words: Words): Promise<unknown>;
  transaction(calls: Words[]): Promise<unknown[]>;
  /** Sends a call on a connection of its own, which ends when end is called. */
  alone(words: Words): { reply: Promise<unknown>; end: () => void };
}

export function senderOf(client: Client): Sender {
  return "call" in client ? ofIORedis(client) : ofNodeRedis(client);
}

function waiterOf(client: Client, connects: () => boolean): Sender["ready"] {
  let ready: Promise<void> | undefined;
  return () => {
    if (!connects()) return undefined;
    return (ready ??= new Promise<void>((resolve) => client.once("ready", resolve)).then(() => (ready = undefined)));
  };
}

// node-redis writes the calls of a tick together. Calls that it has kept while it connected, it writes together with its
// handshake. Each time that a connection ends before the reply, it waits longer before it connects again.
function ofNodeRedis(client: NodeRedis): Sender {
  return {
    repeats: false,
    ready: waiterOf(client, () => client.isOpen && !client.isReady),
    send: (words) => client.sendCommand([...words]),
    transaction(calls) {
      const multi = client.multi();
      for (const words of calls) multi.addCommand([...words]);
      return multi.exec();
    },
    alone(words) {
      const own = client.duplicate();
      own.on("error", () => {});
      return { reply: own.connect().then(() => own.sendCommand([...words])), end: () => own.destroy() };
    },
  };
}

// ioredis writes each call by itself, so the calls of a tick are collected.
function ofIORedis(client: IORedis): Sender {
  let waiting: { words: Words; resolve: (reply: unknown) => void; reject: (error: unknown) => void }[] = [];
  const flush = async () => {
    const batch = waiting;
    waiting = [];
    const first = batch[0];
    if (batch.length === 1 && first) return call(client, first.words).then(first.resolve, first.reject);
    try {
      const pipeline = client.pipeline();
      for (const { words } of batch) call(pipeline, words);
      const replies = (await pipeline.exec()) ?? [];
      batch.forEach(({ resolve, reject }, i) => {
        const [error, reply] = replies[i] ?? [new Error("no reply")];
        if (error) reject(error);
        else resolve(reply);
      });
    } catch (error) {
      for (const { reject } of batch) reject(error);
    }
  };
  return {
    repeats: client.options.autoResendUnfulfilledCommands !== false,
    ready: waiterOf(client, () => ["close", "connect", "connecting", "reconnecting"].includes(client.status)),
    send: (words) =>
      new Promise((resolve, reject) => {
        if (waiting.push({ words, resolve, reject }) === 1) process.nextTick(flush);
      }),
    async transaction(calls) {
      const multi = client.multi();
      for (const words of calls) call(multi, words);
      return ((await multi.exec()) ?? []).map(([error, reply]) => {
        if (error) throw error;
        return reply;
      });
    },
    alone(words) {
      const own = client.duplicate();
      own.on("error", () => {});
      return { reply: call(own, words), end: () => own.disconnect() };
    },
  };
}

function call<T>(on: { call(command: string, ...words: string[]): T }, [command = "", ...words]: Words): T {
  return on.call(command, ...words);
}
