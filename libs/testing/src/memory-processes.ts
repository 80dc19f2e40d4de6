import {
  Bus,
  type BusMessage,
  instanceOf,
  type Leases,
  type LeaseView,
  Rpc,
  type RpcMethod,
  writerLease,
} from '@rookery/replication';
import { MatrixError } from '@rookery/matrix-types';

const asSent = (message: BusMessage): BusMessage =>
  JSON.parse(
    JSON.stringify(message, (_, value: unknown) => (value instanceof Set ? [...(value as Set<unknown>)] : value)),
  ) as BusMessage;

/** Several processes of a server as one test process has them: what they say to each other arrives late, and in order. */
export class MemoryProcesses {
  readonly #members = new Map<string, MemoryBus>();
  readonly #calls = new Map<string, MemoryRpc>();
  readonly #board = new LeaseBoard();

  /** The bus, the calls and the leases of a process; the first one that connects is the one that writes. */
  connect(name: string): { readonly bus: Bus; readonly rpc: Rpc; readonly leases: MemoryLeases } {
    const bus = new MemoryBus((message) => {
      for (const member of this.#members.values()) member.receive(message);
    });
    const rpc = new MemoryRpc(name, this.#members.size + 1, this.#calls);
    this.#members.set(name, bus);
    this.#calls.set(name, rpc);
    const leases = new MemoryLeases(rpc.processNumber, this.#board);
    return { bus, rpc, leases };
  }
}

/** What all processes know of each other. */
class LeaseBoard {
  readonly roles = new Map<number, readonly string[]>();
  readonly holders = new Map<string, number>();
  readonly members = new Set<MemoryLeases>();

  get view(): LeaseView {
    return {
      processes: [...this.roles].map(([number, roles]) => ({ number, roles })),
      leases: new Map(this.holders),
    };
  }

  changed(): void {
    for (const member of this.members) member.look();
  }
}

/** Leases that end with {@link die}, and nothing else. */
export class MemoryLeases implements Leases {
  readonly #listeners = new Set<(view: LeaseView) => void>();
  #isDead = false;

  constructor(
    readonly number: number,
    private readonly board: LeaseBoard,
  ) {
    board.members.add(this);
    board.roles.set(number, []);
    if (number === 1) board.holders.set(writerLease, number);
  }

  get view(): LeaseView {
    return this.board.view;
  }

  get isTrusted(): boolean {
    return !this.#isDead;
  }

  /** The process is lost: others may have what it took. It hears no more of them. */
  die(): void {
    this.#isDead = true;
    this.board.members.delete(this);
    this.board.roles.delete(this.number);
    for (const [name, holder] of this.board.holders) if (holder === this.number) this.board.holders.delete(name);
    this.board.changed();
  }

  /** Tells of what has changed. */
  look(): void {
    setImmediate(() => {
      for (const listener of this.#listeners) listener(this.view);
    });
  }

  onView(listener: (view: LeaseView) => void): () => void {
    const own = (view: LeaseView): void => listener(view);
    this.#listeners.add(own);
    return () => void this.#listeners.delete(own);
  }

  async offer(roles: readonly string[]): Promise<void> {
    if (this.#isDead) return;
    this.board.roles.set(this.number, roles);
    this.board.changed();
  }

  async acquire(names: readonly string[]): Promise<readonly string[]> {
    const got = this.#isDead
      ? []
      : names.filter((name) => (this.board.holders.get(name) ?? this.number) === this.number);
    for (const name of got) this.board.holders.set(name, this.number);
    if (got.length > 0) this.board.changed();
    return got;
  }

  async release(names: readonly string[]): Promise<void> {
    for (const name of names) if (this.board.holders.get(name) === this.number) this.board.holders.delete(name);
    this.board.changed();
  }

  async beat(): Promise<void> {
    this.look();
  }
}

class MemoryBus extends Bus {
  readonly #listeners = new Set<(message: BusMessage) => void>();
  readonly #waiting: (BusMessage | (() => void))[] = [];
  #closed = false;

  constructor(private readonly send: (message: BusMessage) => void) {
    super();
  }

  override get isShared(): boolean {
    return true;
  }

  publish(message: BusMessage): void {
    if (!this.#closed) this.send(asSent(message));
  }

  receive(message: BusMessage): void {
    this.#enter(message);
  }

  override heard(): Promise<boolean> {
    return new Promise((resolve) => this.#enter(() => resolve(true)));
  }

  subscribe(listener: (message: BusMessage) => void): () => void {
    const own = (message: BusMessage): void => listener(message);
    this.#listeners.add(own);
    return () => void this.#listeners.delete(own);
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#listeners.clear();
  }

  #enter(one: BusMessage | (() => void)): void {
    this.#waiting.push(one);
    // Later than what the event loop has in hand: whoever does not wait for news does without.
    if (this.#waiting.length === 1) setTimeout(() => this.#deliver(), 2);
  }

  #deliver(): void {
    for (const one of this.#waiting.splice(0)) {
      if (typeof one === 'function') one();
      else for (const listener of this.#listeners) listener(one);
    }
  }
}

class MemoryRpc extends Rpc {
  readonly #handlers = new Map<string, (request: never) => Promise<unknown>>();

  constructor(
    private readonly instance: string,
    private readonly number: number,
    private readonly all: ReadonlyMap<string, MemoryRpc>,
  ) {
    super();
  }

  override get processNumber(): number {
    return this.number;
  }

  handle<Request, Response>(
    method: RpcMethod<Request, Response>,
    handler: (request: Request) => Promise<Response>,
  ): void {
    this.#handlers.set(method.name, handler);
  }

  call<Request, Response>(
    method: RpcMethod<Request, Response>,
    request: Request,
    instance = this.instance,
  ): Promise<Response> {
    const ask = (): Promise<Response> => this.#ask(method, request, instance);
    return instance === this.instance ? ask() : this.watched(method.name, ask);
  }

  async #ask<Request, Response>(
    method: RpcMethod<Request, Response>,
    request: Request,
    instance: string,
  ): Promise<Response> {
    const callee =
      this.all.get(instance) ?? [...this.all.values()].find((one) => instanceOf(one.processNumber) === instance);
    const handler =
      callee && (callee.#handlers.get(method.name) as ((request: Request) => Promise<Response>) | undefined);
    if (!handler) throw MatrixError.unavailable(`Nobody answers the call ${method.name}`);
    return asJson(await handler(asJson(request)));
  }

  async callOthers<Request, Response>(
    method: RpcMethod<Request, Response>,
    request: Request,
  ): Promise<ReadonlyMap<string, Response>> {
    const answers = new Map<string, Response>();
    const others = [...this.all.keys()].filter((name) => name !== this.instance);
    await Promise.all(
      others.map(async (name) => {
        try {
          answers.set(name, await this.call(method, request, name));
        } catch {
          // Left out, as one that is not there.
        }
      }),
    );
    return answers;
  }
}

const asJson = <T>(value: T): T => (value === undefined ? value : (JSON.parse(JSON.stringify(value)) as T));
