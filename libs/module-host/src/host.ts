import { MatrixError } from '@rookery/matrix-types';
import type { CallbackName, ModuleApi, RookeryModule } from '@rookery/module-api';
import { type Clock, type Config, type Logger, type Metrics, Semaphore } from '@rookery/platform';
import { calledHere, type CallOrigin } from './at-writer.js';
import { ModuleCaches } from './caches.js';
import type { CallOutcome } from './figures.js';
import type { ModuleCapabilities } from './capabilities.js';
import { ModuleDispatcher } from './dispatcher.js';
import { ModuleLoadError } from './errors.js';
import { type Contribution, createModuleApi } from './facade.js';
import { asLoadError } from './definition.js';
import { endThreads, importModules, isSameEntry, type LoadedModule, type ModuleEntry, whileLoading } from './loader.js';
import { ModuleQuestions, withQuestionsWaiting } from './messages.js';
import { runAs } from './owner.js';
import { EMPTY_REGISTRY, ModuleRegistry, type SealedRegistry } from './registry.js';
import { type ModuleReport, reportOf } from './report.js';
import type { ModuleThread } from './module-thread.js';
import { Polls } from './thread-polls.js';
import { ModuleScope } from './scope.js';
import { isDead } from './watch.js';

/** A module in service. */
interface RunningModule {
  readonly loaded: LoadedModule;
  readonly api: ModuleApi;
  readonly contributions: readonly Contribution[];
  readonly scope: ModuleScope;
  readonly caches: ModuleCaches;
}

/** A thread that ended longer ago counts no more. */
const endsCountMs = 300_000;
/** The longest pause before a thread takes the place of one that ended, and before the next try where that failed. */
const maxPauseMs = 60_000;

/** Names of modules by what a reload did to them. */
export interface ReloadResult {
  readonly added: readonly string[];
  readonly changed: readonly string[];
  readonly removed: readonly string[];
  readonly kept: readonly string[];
  /** Changed and removed modules whose providers may be in use: they are made once, when the server starts. */
  readonly keptProviders: readonly { readonly module: string; readonly provider: string }[];
}

/** What the host needs of the process. */
export interface ModuleHostOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics?: Metrics;
  /** Sizes the caches of modules; without, they are as large as the modules say. */
  readonly config?: Config;
  /** Where relative module names start: the folder of the settings file. */
  readonly configDir: string;
}

/**
 * The modules of one server: imports them, lets them register, puts them in force, exchanges them while the server runs,
 * and ends them. The dispatcher is there from the beginning, so that domains can be built around it.
 */
export class ModuleHost {
  readonly dispatcher: ModuleDispatcher;
  readonly #log: Logger;
  readonly #questions: ModuleQuestions;
  #running: readonly RunningModule[] = [];
  #capabilities: ModuleCapabilities | undefined;
  /** Modules are exchanged by one at a time. */
  readonly #exchanging = new Semaphore(1);
  #stopped = false;
  /** When the threads of modules ended of late, by module. */
  readonly #ends = new Map<string, number[]>();
  /** What threads of modules are asked through, once there is any. */
  #polls: Polls | undefined;
  /** Threads of modules that are out of service, for the providers that they made. */
  readonly #staying: ModuleThread[] = [];

  constructor(private readonly options: ModuleHostOptions) {
    this.#log = options.logger.child('modules');
    const observe = options.metrics && observer(options.metrics);
    this.dispatcher = new ModuleDispatcher({
      ...{ clock: options.clock, log: this.#log },
      ...(observe ? { observe } : {}),
    });
    this.dispatcher.reportFrom(() => this.#report());
    this.#questions = new ModuleQuestions(options.clock, this.#log, () => this.dispatcher.messages);
    if (options.metrics) this.#showHealth(options.metrics);
  }

  /**
   * Imports modules and checks their configuration, before anything else of the server exists.
   * @throws ModuleLoadError
   */
  import(entries: readonly ModuleEntry[]): Promise<LoadedModule[]> {
    const { configDir, clock } = this.options;
    if (entries.some(({ isolate }) => isolate === 'thread')) this.#polls ??= new Polls();
    return importModules(entries, { configDir, clock, logger: this.#log, running: this.running, polls: this.#polls });
  }

  /**
   * Lets modules register, in order, and puts them in force. Once, before the server listens.
   * @throws ModuleLoadError; then no module is in force
   */
  async start(loaded: readonly LoadedModule[], capabilities: ModuleCapabilities): Promise<void> {
    this.#capabilities = capabilities;
    await this.#replace(loaded, new Map());
    for (const { loaded: module } of this.#running) {
      this.#log.info('Module loaded', { module: module.definition.name, apiVersion: module.definition.apiVersion });
    }
  }

  /**
   * Puts changed entries in force while the server runs: new and changed modules register, all at once take effect, then
   * removed and replaced ones are stopped. Modules whose entry and code are the same stay as they are.
   * @throws ModuleLoadError; then everything stays as it was
   */
  reload(entries: readonly ModuleEntry[]): Promise<ReloadResult> {
    if (this.#stopped) return Promise.reject(new Error('The server is stopping'));
    return this.#exchanging.run(() => this.#reload(entries));
  }

  /** Answers the copy of a module in another process. @throws MatrixError as a question of another module would be answered */
  answerCopy(module: string, question: string, payload: unknown, origin: CallOrigin): Promise<unknown> {
    return this.#because(origin, () => this.#questions.ask(module, module, question, payload));
  }

  /**
   * Calls something of a module's API for its copy in a process that does not write.
   * @throws whatever the call throws; MatrixError 404 for what nobody may ask for, 503 while the module is not in service here
   */
  async callForCopy(module: string, path: string, args: readonly unknown[], origin: CallOrigin): Promise<unknown> {
    const running = this.#running.find(({ loaded }) => loaded.definition.name === module);
    if (!running) throw MatrixError.unavailable(`The module ${module} is not in service in the process that writes`);
    return this.#because(origin, () => runAs(running.loaded.owner, () => calledHere(running.api, path, args)));
  }

  /** The modules in service, in the order of the settings. */
  get running(): readonly LoadedModule[] {
    return this.#running.map(({ loaded }) => loaded);
  }

  /** Ends all modules, the last first. Callbacks are not asked any more. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#exchanging.run(() => Promise.resolve());
    this.dispatcher.install(EMPTY_REGISTRY);
    for (const { scope, loaded } of this.#running.toReversed()) {
      // What it does at its end is waited for.
      loaded.thread?.keepAwake();
      await scope.stop();
      await loaded.thread?.end();
    }
    for (const thread of this.#staying.splice(0)) await thread.end();
    this.#polls?.close();
    this.#running = [];
  }

  /** Ends what {@link import} brought and {@link start} was not given. */
  async discard(loaded: readonly LoadedModule[]): Promise<void> {
    await endThreads(loaded, this.running);
  }

  #because<T>({ events, questions }: CallOrigin, work: () => T): T {
    return this.dispatcher.chains.answering(events, () => withQuestionsWaiting(questions, work));
  }

  #report(): Promise<readonly ModuleReport[]> {
    const { figures } = this.dispatcher;
    const nowMs = this.options.clock.monotonicMs();
    return Promise.all(this.running.map((module) => reportOf(module, figures, nowMs)));
  }

  /** What cannot be told from the calls, for the page of metrics. */
  #showHealth(metrics: Metrics): void {
    const shown = new Map<string, string[]>();
    const show = <L extends string>(
      gauge: {
        set(labels: Readonly<Record<L, string>>, value: number): void;
        remove(labels: Readonly<Record<L, string>>): void;
      },
      name: string,
      label: L,
      values: ReadonlyMap<string, number>,
    ): void => {
      const labels = (module: string): Readonly<Record<L, string>> => ({ [label]: module }) as Record<L, string>;
      for (const module of shown.get(name) ?? []) if (!values.has(module)) gauge.remove(labels(module));
      for (const [module, value] of values) gauge.set(labels(module), value);
      shown.set(name, [...values.keys()]);
    };
    const suspended = 'rookery_module_suspended_callbacks';
    metrics.gauge<'module'>(
      { name: suspended, help: 'Callbacks that are not asked now, because they hung.', labels: ['module'] },
      (gauge) => {
        const { handlers } = this.dispatcher.figures;
        const count = (name: string): number =>
          handlers.filter((handler) => handler.module === name && isDead(handler)).length;
        show(gauge, suspended, 'module', new Map(this.dispatcher.modules.map((name) => [name, count(name)])));
      },
    );
    const heap = 'rookery_module_thread_memory_bytes';
    metrics.gauge<'module'>(
      { name: heap, help: 'Memory of the threads of modules: heap and what lies outside of it.', labels: ['module'] },
      async (gauge) => {
        const threads = this.#running.flatMap(({ loaded }) => (loaded.thread ? [loaded] : []));
        const figures = await Promise.all(threads.map(async ({ thread }) => thread?.figures()));
        const known = threads.flatMap(({ definition }, i) => {
          const bytes = figures[i]?.heapBytes;
          return bytes === undefined || Number.isNaN(bytes) ? [] : [[definition.name, bytes] as const];
        });
        show(gauge, heap, 'module', new Map(known));
      },
    );
  }

  async #reload(entries: readonly ModuleEntry[]): Promise<ReloadResult> {
    const loaded = await this.import(entries);
    const before = new Map(this.#running.map((running) => [running.loaded.definition.name, running]));
    const kept = new Map<LoadedModule, RunningModule>();
    for (const module of loaded) {
      const running = before.get(module.definition.name);
      if (running && isSame(running.loaded, module)) kept.set(module, running);
    }
    const { providers } = await this.#replace(loaded, kept);
    const keptNames = new Set([...kept.keys()].map(({ definition }) => definition.name));
    const names = loaded.map(({ definition }) => definition.name);
    const fresh = loaded.filter((module) => !kept.has(module)).map(({ definition }) => definition.name);
    return {
      added: fresh.filter((name) => !before.has(name)),
      changed: fresh.filter((name) => before.has(name)),
      removed: [...before.keys()].filter((name) => !names.includes(name)),
      kept: [...keptNames],
      keptProviders: Object.values(providers).flatMap((ofKind) =>
        [...(ofKind as ReadonlyMap<string, { readonly module: string }>)]
          .filter(([, { module }]) => !keptNames.has(module))
          .map(([provider, { module }]) => ({ module, provider })),
      ),
    };
  }

  /** Puts these modules in force. @returns what was in force before */
  async #replace(
    loaded: readonly LoadedModule[],
    kept: ReadonlyMap<LoadedModule, RunningModule>,
  ): Promise<SealedRegistry> {
    const registry = new ModuleRegistry((module, message) =>
      this.#log.warn('Odd module', { module, problem: message }),
    );
    const next: RunningModule[] = [];
    let replaced: SealedRegistry;
    try {
      for (const module of loaded) {
        const running = kept.get(module);
        registry.addModule(module.definition.name, module.owner);
        if (running) {
          for (const contribute of running.contributions) contribute(registry);
          next.push(running);
        } else {
          await this.#register(module, registry, next);
        }
      }
      replaced = this.dispatcher.install(registry.seal());
    } catch (error) {
      const keep = new Set(kept.values());
      for (const running of next.toReversed()) if (!keep.has(running)) await running.scope.stop();
      await endThreads(loaded, this.running);
      throw this.#located(error, loaded);
    }
    const before = this.#running;
    const stopping = before.filter((running) => !next.includes(running));
    this.#running = next;
    this.dispatcher.figures.counted.keep(new Set(this.dispatcher.modules));
    for (const running of next) {
      running.scope.begin();
      if (running.loaded.thread && !before.includes(running)) this.#watchThread(running, running.loaded.thread);
    }
    for (const { scope, loaded: old } of stopping.toReversed()) {
      const taking = next.find(({ loaded: fresh }) => fresh.definition.name === old.definition.name);
      const stop = (): Promise<void> => scope.stop();
      if (!old.thread) await stop();
      else if (await old.thread.retire(taking?.loaded.thread, stop)) this.#staying.push(old.thread);
    }
    return replaced;
  }

  /** When the thread of a module in service ends, another one takes its place. */
  #watchThread(running: RunningModule, thread: ModuleThread): void {
    const { name } = running.loaded.definition;
    void thread.over.then((reason) => {
      if (this.#stopped || !this.#running.includes(running)) return;
      const nowMs = this.options.clock.monotonicMs();
      const ends = [...(this.#ends.get(name) ?? []).filter((endMs) => endMs > nowMs - endsCountMs), nowMs];
      this.#ends.set(name, ends);
      const againInMs = ends.length === 1 ? 0 : Math.min(1_000 * 2 ** (ends.length - 2), maxPauseMs);
      this.#log.error('The thread of a module has ended; another one takes its place', {
        ...{ module: name, reason, againInMs, endedOfLate: ends.length },
      });
      if (againInMs > 0) this.options.clock.after(againInMs, () => this.#revive(running, thread));
      else this.#revive(running, thread);
    });
  }

  /** Loads the module of a thread that has ended anew. Until that has come to an end, what is asked waits. */
  #revive(running: RunningModule, thread: ModuleThread): void {
    // A reload has put something else in its place: what was registered with this thread goes there.
    if (this.#stopped || !this.#running.includes(running)) return;
    const revived = this.#exchanging.run(async () => {
      const { loaded } = running;
      if (this.#stopped || !this.#running.includes(running)) throw new Error('It is not in service any more');
      const [fresh] = await this.import([loaded.entry]);
      if (!fresh?.thread) throw new Error('It has no thread');
      const all = this.#running.map((one) => (one === running ? fresh : one.loaded));
      const kept = new Map(this.#running.flatMap((one) => (one === running ? [] : [[one.loaded, one]])));
      await this.#replace(all, kept);
      return fresh.thread;
    });
    thread.succeededBy(revived);
    revived.catch((err: unknown) => {
      if (this.#stopped || !this.#running.includes(running)) return;
      this.#log.error('The thread of a module could not be made again', {
        module: running.loaded.definition.name,
        err,
      });
      this.options.clock.after(maxPauseMs, () => this.#revive(running, thread));
    });
  }

  async #register(loaded: LoadedModule, registry: ModuleRegistry, next: RunningModule[]): Promise<void> {
    const capabilities = this.#capabilities;
    if (!capabilities) throw new Error('The module host was not started');
    const { clock, metrics } = this.options;
    const { name } = loaded.definition;
    const contributions: Contribution[] = [];
    const scope = new ModuleScope(loaded.owner, clock, this.#log);
    const caches = new ModuleCaches(clock, this.options.config && { config: this.options.config, module: name });
    scope.add(() => caches.end());
    let open = true;
    const contribute = (method: string, contribution: Contribution): void => {
      if (!open) {
        this.#log.error('A module registered too late', { module: name, method });
        throw new ModuleLoadError(name, `${method} was called too late: it belongs into register()`);
      }
      contribution(registry);
      contributions.push(contribution);
    };
    const api = createModuleApi({
      loaded,
      scope,
      capabilities,
      caches,
      clock,
      metrics,
      chains: this.dispatcher.chains,
      questions: this.#questions,
      answersSoFar: () => (open ? registry.messages : undefined),
      contribute,
    });
    // Before it registers, so that what it began is ended when it fails.
    next.push({ loaded, api, contributions, scope, caches });
    try {
      await whileLoading({ ...loaded, clock, late: 'it did not finish' }, async () => {
        this.#log.info('Registering module', { module: name });
        return loaded.definition.register(api, loaded.config);
      });
    } catch (error) {
      throw asLoadError(name, error, 'register() failed: ');
    } finally {
      open = false;
    }
  }

  /** Adds file and line to an error about one of the modules. */
  #located(error: unknown, loaded: readonly LoadedModule[]): unknown {
    if (!(error instanceof ModuleLoadError)) return error;
    const module = loaded.findLast(({ definition }) => definition.name === error.module);
    return error.at(module?.entry.where?.([]));
  }
}

/** Whether a module need not register again. */
function isSame(a: LoadedModule, b: LoadedModule): boolean {
  const code = (definition: RookeryModule): unknown => definition.register;
  return a.url === b.url && code(a.definition) === code(b.definition) && isSameEntry(a.entry, b.entry);
}

function observer(
  metrics: Metrics,
): (module: string, callback: CallbackName, outcome: CallOutcome, durationMs: number) => void {
  const calls = metrics.histogram<'module' | 'callback' | 'outcome'>({
    name: 'rookery_module_callback_seconds',
    help: 'Time of calls of module callbacks, seconds, by how they ended.',
    labels: ['module', 'callback', 'outcome'],
    buckets: [0.0001, 0.001, 0.01, 0.1, 1, 5, 30],
  });
  // Found once each: with ten judges, looking for their lines takes longer than reading what they say.
  const known = new Map<string, Map<CallbackName, Partial<Record<CallOutcome, ReturnType<typeof calls.child>>>>>();
  return (module, callback, outcome, durationMs) => {
    let ofModule = known.get(module);
    if (!ofModule) known.set(module, (ofModule = new Map()));
    let lines = ofModule.get(callback);
    if (!lines) ofModule.set(callback, (lines = {}));
    (lines[outcome] ??= calls.child({ module, callback, outcome })).observe(durationMs / 1000);
  };
}
