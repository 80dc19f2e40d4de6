import { AsyncResource } from 'node:async_hooks';
import { readFileSync } from 'node:fs';
import type { EventLoopUtilization } from 'node:perf_hooks';
import { MessageChannel, type MessagePort, Worker } from 'node:worker_threads';
import type {
  AuthChecker,
  IdentityProvider,
  MediaStorageProvider,
  ModuleApi,
  OidcMappingProvider,
  SamlMappingProvider,
} from '@rookery/module-api';
import { MatrixError } from '@rookery/matrix-types';
import { type Clock, environmentOf, type Logger } from '@rookery/platform';
import type { Code } from './code-files.js';
import type { ConfigProblem } from './definition.js';
import { isHostAllowed, type ModuleManifest } from './manifest.js';
import { type Owner, runAs } from './owner.js';
import { madeElsewhere } from './provider-parts.js';
import { type ApiSurface, identityProviderMethods, type InSlot, type Registration, surfaceOf } from './thread-api.js';
import { Peer } from './thread-peer.js';
import type { Lent } from './thread-values.js';
import { PollAnswer, type PollMember, type PollMemory, type Polls } from './thread-polls.js';
import { readableError } from './watch.js';

/** What a thread is given when it begins. */
export interface ThreadData {
  readonly port: MessagePort;
  /** Where answers come in while it rests. */
  readonly answers: MessagePort;
  /**
   * By how much the server's clocks differ from the thread's: of the day, and the steady one; and how long the thread lay still
   * where its event loop could not tell. Milliseconds. Then what the system calls the thread, where that is known.
   */
  readonly time: Float64Array;
  readonly module: string;
  readonly configDir: string;
  readonly config: unknown;
  readonly settingsOption: string | undefined;
  readonly installedIn: string | undefined;
  readonly memoryLimitBytes: number;
  readonly manifest: ModuleManifest | undefined;
  /** Where questions come in that are put to many threads at once. */
  readonly polls: PollMemory | undefined;
}

/** What a thread says of the module that it has loaded, or why there is none. */
export type LoadedInThread =
  | {
      readonly name: string;
      readonly apiVersion: string;
      readonly warnings: readonly string[];
      readonly configJsonSchema: Readonly<Record<string, unknown>> | undefined;
    }
  | { readonly module: string; readonly problems: readonly ConfigProblem[] };

/** Limits of one module's thread. */
export interface ThreadLimits {
  /** It is ended when it gives no sign of life for so long. */
  readonly timeLimitMs: number;
  /** Of its heap, and of what lies outside of it. */
  readonly memoryLimitBytes: number;
}

/** What a thread is made from. */
export interface ThreadOptions {
  readonly module: string;
  readonly configDir: string;
  readonly config: unknown;
  readonly settingsOption: string | undefined;
  readonly installedIn: string | undefined;
  readonly manifest: ModuleManifest | undefined;
  readonly limits: ThreadLimits;
  /** The module's code as it is now. */
  readonly code: Code;
  readonly owner: Owner;
  readonly clock: Clock;
  readonly logger: Logger;
  /** What it shares with the server's other threads. */
  readonly polls: Polls | undefined;
}

/** What anybody's thread may read of the environment. */
const harmless = ['TZ', 'LANG', 'LC_ALL', 'NODE_ENV', 'NODE_OPTIONS', 'SWC_NODE_PROJECT'];
const mebibyte = 1_048_576;
/** So many calls are kept in mind, for what comes of them. */
const maxContexts = 1_024;
/** While it is loaded, which engines may do for long without a break, it may be silent for so long at least. */
const loadingLimitMs = 20_000;
/** While it is loaded, what it waits for a processor does not count as silence, up to so many times its limit. */
const maxPatience = 6;
const lookAgainMs = 10;
const figuresLimitMs = 500;
/** Stays when a thread is ended while somebody still waits for the news of it. */
const endLimitMs = 2_000;

/** What belongs to the calls that came last, by their numbers, which grow one by one. Flat: many are made and none is looked at. */
class LastCalls<T> {
  readonly #values: (T | undefined)[];
  readonly #callIds: Float64Array;

  constructor(private readonly size: number) {
    this.#values = Array.from({ length: size }, () => undefined);
    this.#callIds = new Float64Array(size);
  }

  get(callId: number): T | undefined {
    const at = callId % this.size;
    return this.#callIds[at] === callId ? this.#values[at] : undefined;
  }

  set(callId: number, value: T): void {
    const at = callId % this.size;
    this.#callIds[at] = callId;
    this.#values[at] = value;
  }

  clear(): void {
    this.#callIds.fill(0);
    this.#values.fill(undefined);
  }
}

/** A module's worker thread: carries its callbacks out, watches over it, and ends it when it has to. */
export class ModuleThread {
  readonly #worker: Worker;
  readonly #peer: Peer;
  /** Where calls into the thread came from: what comes of them there goes on from here, also when they are answered. */
  readonly #contexts = new LastCalls<AsyncResource>(maxContexts);
  readonly #functions = new Map<string, Lent>();
  readonly #time: Float64Array;
  readonly #member: PollMember | undefined;
  #api: ModuleApi | undefined;
  #why: string | undefined;
  #isOver = false;
  #isLoading = true;
  #isRetired = false;
  /** How long it has not answered what it was asked last; undefined when it has. */
  #silentMs: number | undefined;
  /** How long it had waited for a processor by then. */
  #starvedMs = 0;
  #watch: NodeJS.Timeout | undefined;
  #seen: EventLoopUtilization | undefined;
  #restedMs = 0;
  #tellOver: (why: string) => void = () => {};
  /** The thread that took this one's place, once there is one. */
  #successor: Promise<ModuleThread> | undefined;
  /** Slots of the providers that it can make, and of those in use that it made or that were made before it. */
  readonly #makes = new Set<string>();
  readonly #inUse = new Set<string>();

  /** Settles when the thread has ended, with the reason. */
  readonly over = new Promise<string>((resolve) => (this.#tellOver = resolve));

  constructor(private readonly options: ThreadOptions) {
    const { limits, manifest, module } = options;
    const wire = new MessageChannel();
    const answers = new MessageChannel();
    this.#time = new Float64Array(new SharedArrayBuffer(32));
    const polled = options.polls?.member((callId, value) => this.#peer.settle(callId, value));
    this.#member = polled?.member;
    const data: ThreadData = {
      port: wire.port2,
      answers: answers.port2,
      time: this.#time,
      memoryLimitBytes: limits.memoryLimitBytes,
      ...{ module, manifest, configDir: options.configDir, config: options.config },
      ...{ settingsOption: options.settingsOption, installedIn: options.installedIn },
      polls: polled?.memory,
    };
    // In a checkout that runs from its sources, so does the thread.
    const isSource = import.meta.filename.endsWith('.ts');
    const main = `./thread-main${isSource ? '.ts' : '.js'}`;
    this.#worker = new Worker(new URL(main, import.meta.url), {
      name: `module ${module}`.slice(0, 60),
      workerData: data,
      transferList: [wire.port2, answers.port2],
      // What the server is started with is not for modules: what is loaded before it, above all.
      ...(isSource ? {} : { execArgv: [] }),
      env: environmentOf([...harmless, ...(manifest?.secrets ?? [])]),
      resourceLimits: { maxOldGenerationSizeMb: Math.max(16, Math.ceil(limits.memoryLimitBytes / mebibyte)) },
    });
    this.#peer = new Peer(wire.port1, {
      named: (name) => this.#named(name),
      around: (_callId, cause, work) => {
        const context = cause === undefined ? undefined : this.#contexts.get(cause);
        const own = (): void => runAs(options.owner, work);
        if (context) context.runInAsyncScope(own);
        else own();
      },
      begun: (callId) => this.#contexts.set(callId, new AsyncResource('ModuleCall')),
      freezes: false,
      reply: (message) => answers.port1.postMessage(message),
      sent: () => this.#member && options.polls?.nudge(this.#member),
    });
    wire.port1.on('message', (message) => {
      try {
        this.#peer.receive(message);
      } catch (err) {
        options.logger.error('The thread of a module sent what means nothing', { module: options.owner.name, err });
        void this.end('it sent what means nothing');
      }
    });
    // Whoever waits for a module keeps the process awake by other means.
    wire.port1.unref();
    answers.port1.unref();
    this.#worker.unref();
    this.#worker.on('error', (error: NodeJS.ErrnoException) => {
      const limit = `${Math.round(limits.memoryLimitBytes / mebibyte)} MiB`;
      const isMemory = error.code === 'ERR_WORKER_OUT_OF_MEMORY';
      this.#why ??= isMemory
        ? `it used more than its memory limit of ${limit}`
        : `it failed: ${readableError(error).message}`;
    });
    this.#worker.on('exit', (code) => {
      wire.port1.close();
      answers.port1.close();
      this.#ended(this.#why ?? `its code ended it with process.exit(${code})`);
    });
    this.#setTime();
    this.#watchOver();
  }

  /** Imports the module and checks its configuration. */
  load(): Promise<LoadedInThread> {
    return this.#peer.call('load', []) as Promise<LoadedInThread>;
  }

  /** Lets the module register with `api`, as if it ran here. */
  async register(api: ModuleApi): Promise<void> {
    this.#api = api;
    const surface: ApiSurface = surfaceOf(api, (path, fn) => this.#functions.set(`api:${path}`, this.#held(path, fn)));
    await this.#peer.call('register', [surface]);
    this.#isLoading = false;
  }

  /** The module's code as it was when this thread began. */
  get code(): Code {
    return this.options.code;
  }

  /** Whether it has ended. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Calls in the thread that are not answered yet. */
  get waiting(): number {
    return this.#peer.waiting;
  }

  /** Its memory, how busy it was since it was last looked at, and the calls that wait. `undefined` when it has ended. */
  async figures(): Promise<{ heapBytes: number; busy: number; waiting: number } | undefined> {
    if (this.#isOver) return undefined;
    try {
      // A thread that hangs does not tell.
      const late = new Promise<undefined>((resolve) => setTimeout(() => resolve(undefined), figuresLimitMs).unref());
      const heap = await Promise.race([this.#worker.getHeapStatistics(), late]);
      const heapBytes = heap ? heap.used_heap_size + heap.external_memory : NaN;
      const now = this.#worker.performance.eventLoopUtilization();
      const since = this.#seen ? this.#worker.performance.eventLoopUtilization(now, this.#seen) : now;
      this.#seen = now;
      const restedMs = this.#time[2]!;
      const busyMs = Math.max(0, since.active - (restedMs - this.#restedMs));
      this.#restedMs = restedMs;
      const busy = busyMs === 0 ? 0 : busyMs / (since.idle + since.active);
      return { heapBytes, busy, waiting: this.#peer.waiting };
    } catch {
      return undefined;
    }
  }

  /** Says who takes over: what was registered with this thread is carried out there from now on. */
  succeededBy(successor: Promise<ModuleThread>): void {
    this.#successor = successor;
    successor.then(
      (thread) => this.#handOver(thread),
      () => {},
    );
  }

  /**
   * Calls what the module registered. In one go with other threads ({@link Polls}) the answer is there to be looked at.
   * @throws Error when the thread has ended, or ends meanwhile, and none took its place
   */
  call(slot: string, args: readonly unknown[]): Promise<unknown> | PollAnswer {
    if (this.#isOver || this.#isRetired) {
      const successor = this.#successor;
      if (successor) return successor.then((thread) => thread.call(slot, args));
    }
    const { polls } = this.options;
    const poll = this.#member && !this.#isOver ? polls?.pollFor(slot, args) : undefined;
    if (poll) {
      // For all at once: each reading of a clock is one more thing for every thread.
      if (poll.members.length === 0) poll.time = this.#timeNow();
      this.#time[0] = poll.time[0];
      this.#time[1] = poll.time[1];
      const answer = new PollAnswer();
      const callId = this.#peer.expect(slot, answer);
      this.#contexts.set(callId, poll.context);
      poll.members.push({ member: this.#member!, callId });
      return answer;
    }
    return this.#ask(slot, args);
  }

  /** Calls what was registered with this thread, whoever has taken its place. */
  #ask(slot: string, args: readonly unknown[]): Promise<unknown> {
    this.#setTime();
    return this.#peer.call(slot, args);
  }

  /**
   * Ends the thread once it has answered what it was asked, or its time is over. What it is asked from now on goes to `successor`, if
   * there is one. It stays for providers in use that the successor does not make.
   * @param stop has the module end what it began, which it can do only as long as its thread is there
   * @returns whether it stays
   */
  async retire(successor: ModuleThread | undefined, stop: () => Promise<void>): Promise<boolean> {
    if (successor) this.succeededBy(Promise.resolve(successor));
    this.#isRetired = successor !== undefined;
    const endMs = performance.now() + this.options.limits.timeLimitMs;
    this.keepAwake();
    await stop();
    while (this.#peer.waiting > 0 && !this.#isOver && performance.now() < endMs) {
      await new Promise((resolve) => setTimeout(resolve, lookAgainMs));
    }
    const stays = !this.#isOver && [...this.#inUse].some((slot) => !successor || !successor.#makes.has(slot));
    if (stays) this.#worker.unref();
    else await this.end();
    return stays;
  }

  /** What is in use goes on to be where it is made from now on. */
  #handOver(successor: ModuleThread): void {
    for (const slot of this.#inUse) if (successor.#makes.has(slot)) successor.#inUse.add(slot);
  }

  /** Keeps this process awake until the thread has ended: at its end, and in a command, nothing else does. */
  keepAwake(): void {
    this.#worker.ref();
  }

  /** Ends the thread, whatever it is doing. @param why for what waits for it */
  async end(why = 'it was stopped'): Promise<void> {
    this.#why ??= why;
    clearInterval(this.#watch);
    const asked = [...this.#peer.called].filter((target) => String(target).includes(':')).slice(0, 5);
    if (asked.length > 0 && why !== 'it was stopped') this.#why += `, in ${asked.join(', ')}`;
    const patience = new Promise((resolve) => setTimeout(resolve, endLimitMs).unref());
    await Promise.race([this.#worker.terminate(), patience]);
    this.#ended(this.#why);
  }

  #ended(why: string): void {
    if (this.#isOver) return;
    this.#isOver = true;
    clearInterval(this.#watch);
    this.#peer.close(new Error(`The thread of module ${this.options.owner.name} has ended: ${why}`));
    if (this.#member) this.options.polls?.leave(this.#member);
    this.#contexts.clear();
    this.#tellOver(why);
  }

  /** In real time, whatever the server's clock says: a thread hangs or it does not. */
  #watchOver(): void {
    const { limits } = this.options;
    const everyMs = Math.max(20, Math.min(limits.timeLimitMs / 4, 1_000));
    let lookedAtMs = performance.now();
    const look = (): void => {
      const nowMs = performance.now();
      // Where the machine slept, or the whole process was stopped, the thread was, too: that does not count.
      const sinceLookMs = Math.min(nowMs - lookedAtMs, 2 * everyMs);
      lookedAtMs = nowMs;
      if (this.#silentMs === undefined) {
        this.#silentMs = 0;
        if (this.#isLoading) this.#starvedMs = starvedMs(this.#time[3]!);
        this.#peer.ping(() => (this.#silentMs = undefined));
        return;
      }
      this.#silentMs += sinceLookMs;
      const limitMs = this.#isLoading ? Math.max(limits.timeLimitMs, loadingLimitMs) : limits.timeLimitMs;
      if (this.#silentMs < limitMs) return;
      // Of all times this is when many threads begin at once, on machines that may have other things to do.
      const starved = this.#isLoading ? starvedMs(this.#time[3]!) - this.#starvedMs : 0;
      if (this.#silentMs < Math.min(limitMs + starved, maxPatience * limitMs)) return;
      // It may have answered while this process was busy itself: what has come is read first.
      setImmediate(() => {
        if (this.#silentMs === undefined || this.#isOver) return;
        void this.end(`it gave no sign of life for ${limitMs} ms`);
      });
    };
    this.#watch = setInterval(look, everyMs).unref();
  }

  #setTime(): void {
    [this.#time[0], this.#time[1]] = this.#timeNow();
  }

  #timeNow(): readonly [day: number, steady: number] {
    const { clock } = this.options;
    const nowMs = performance.now();
    return [clock.nowMs() - (performance.timeOrigin + nowMs), clock.monotonicMs() - nowMs];
  }

  #named(name: string): Lent | undefined {
    if (name === 'register') return (registration) => this.#registered(registration as Registration);
    if (name === 'escaped') return (what, error) => this.#escaped(String(what), error);
    if (name === 'ending') return (why) => void (this.#why ??= String(why).slice(0, 1_000));
    return this.#functions.get(name);
  }

  #escaped(what: string, error: unknown): void {
    const { logger, owner } = this.options;
    const message =
      what === 'rejection'
        ? 'A promise was rejected with nobody listening'
        : 'A module threw where nobody could catch it';
    logger.error(message, { module: owner.name, err: readableError(error) });
  }

  /** A function of the API, as far as the manifest names what it reaches. */
  #held(path: string, fn: Lent): Lent {
    const { manifest, owner } = this.options;
    if (!manifest) return fn;
    const refuse = (what: string): never => {
      throw MatrixError.forbidden(`The manifest of module ${owner.name} does not name ${what}`);
    };
    if (path.startsWith('httpClient.')) {
      return (...args) => {
        const url = new URL(String(path === 'httpClient.request' ? args[1] : args[0]));
        return isHostAllowed(manifest.hosts, url.hostname) ? fn(...args) : refuse(`the host ${url.hostname}`);
      };
    }
    if (path.startsWith('federation.')) {
      return (...args) => {
        const host = String(args[0]);
        return isHostAllowed(manifest.hosts, host) ? fn(...args) : refuse(`the host ${host}`);
      };
    }
    if (path === 'messages.ask') {
      return (...args) =>
        manifest.modules.includes(String(args[0])) ? fn(...args) : refuse(`the module ${String(args[0])}`);
    }
    const needsTables = path === 'migrate' || path === 'runDbInteraction';
    return needsTables && manifest.tables.length === 0 ? () => refuse('any table') : fn;
  }

  #registered(registration: Registration): void {
    const api = this.#api;
    if (!api) throw new Error('The module does not register');
    const { manifest, owner } = this.options;
    const calling =
      ({ slot }: InSlot): Lent =>
      (...args) =>
        this.call(slot, args);
    switch (registration.kind) {
      case 'callbacks': {
        const { method, callbacks: given } = registration;
        if (typeof given !== 'object' || given === null) return void call(api, method, given);
        const callbacks: Record<string, unknown> = {};
        for (const [name, value] of Object.entries(given)) {
          if (manifest && !manifest.callbacks.includes(name))
            throw new Error(`the manifest of module ${owner.name} does not name the callback ${name}`);
          if (isInSlot(value)) callbacks[name] = calling(value);
          else if (name === 'authCheckers' && Array.isArray(value)) {
            callbacks[name] = (value as AuthChecker[]).map((checker) => {
              const check: unknown = checker.check;
              return isInSlot(check) ? { ...checker, check: calling(check) } : checker;
            });
          } else callbacks[name] = value;
        }
        return void call(api, method, callbacks);
      }
      case 'web': {
        const { path } = registration;
        api.registerWebResource(path as string, (request, context) => {
          return this.call(`web:${String(path)}`, [request, context]) as Promise<Response>;
        });
        return;
      }
      case 'identityProvider': {
        const provider = registration.provider as IdentityProvider;
        const methods = identityProviderMethods
          .filter((method) => registration.methods.includes(method))
          .map((method) => [method, calling({ slot: `identity:${provider.id}:${method}` })] as const);
        return api.registerIdentityProvider({ ...provider, ...(Object.fromEntries(methods) as object) });
      }
      case 'provider': {
        const { method, name } = registration;
        if (typeof name !== 'string') return void call(api, method, name, undefined);
        this.#makes.add(`${method}:${name}`);
        return void call(api, method, name, (...from: unknown[]) => this.#provider(method, name, from));
      }
      default:
        throw new Error('There is no such registration');
    }
  }

  /** A provider in the thread. It is made at once, and again where another thread takes over or it could not be made. */
  #provider(method: string, name: string, from: readonly unknown[]): unknown {
    let maker: ModuleThread | undefined;
    let made: Promise<Readonly<Record<string, Lent>>> | undefined;
    const slot = `${method}:${name}`;
    const provider = async (): Promise<Readonly<Record<string, Lent>>> => {
      const thread = await this.#makerOf(slot);
      if (maker !== thread || !made) {
        maker = thread;
        thread.#inUse.add(slot);
        const making = thread.#ask(slot, from) as Promise<Readonly<Record<string, Lent>>>;
        made = making;
        making.catch(() => {
          if (made === making) made = undefined;
        });
      }
      return made;
    };
    void provider().catch(() => {});
    const calling =
      (part: string) =>
      async (...args: unknown[]): Promise<never> =>
        (await provider())[part]?.(...args) as Promise<never>;
    switch (method) {
      case 'registerMediaStorageProvider':
        return madeElsewhere<MediaStorageProvider>(
          {
            storeFile: calling('storeFile'),
            fetch: calling('fetch'),
            remove: calling('remove'),
            downloadUrl: calling('downloadUrl'),
          },
          provider,
        );
      case 'registerOidcMappingProvider':
        return madeElsewhere<OidcMappingProvider>(
          {
            getRemoteUserId: calling('getRemoteUserId') as unknown as OidcMappingProvider['getRemoteUserId'],
            mapUserAttributes: calling('mapUserAttributes'),
            getExtraAttributes: async (...args) => (await calling('getExtraAttributes')(...args)) ?? {},
          },
          provider,
        );
      default:
        return madeElsewhere<SamlMappingProvider>(
          {
            getSamlAttributes: calling('getSamlAttributes') as unknown as SamlMappingProvider['getSamlAttributes'],
            getRemoteUserId: calling('getRemoteUserId') as unknown as SamlMappingProvider['getRemoteUserId'],
            samlResponseToUserAttributes: calling('samlResponseToUserAttributes'),
          },
          provider,
        );
    }
  }

  /** The thread that makes a provider now: the last one that can. */
  async #makerOf(slot: string): Promise<ModuleThread> {
    const successor = this.#isOver || this.#isRetired ? await this.#successor : undefined;
    return successor && successor.#makes.has(slot) ? successor.#makerOf(slot) : this;
  }
}

/**
 * How long a thread of this process has waited for a processor since it began, milliseconds; 0 where the system does not tell.
 * @param thread the number that the system gave it; 0 as long as nobody knows
 */
export function starvedMs(thread: number): number {
  try {
    return Number(readFileSync(`/proc/self/task/${thread}/schedstat`, 'utf8').split(' ')[1]) / 1e6 || 0;
  } catch {
    return 0;
  }
}

const isInSlot = (value: unknown): value is InSlot =>
  typeof value === 'object' && value !== null && typeof (value as { slot?: unknown }).slot === 'string';

/** Calls a method by its name, with whatever a module gave: the registry says what is wrong with it. */
const call = (api: ModuleApi, method: string, ...args: unknown[]): unknown =>
  (api as unknown as Record<string, Lent>)[method]?.(...args);
