import {
  type AllCallbacks,
  type AuthSuccess,
  type CallbackContext,
  type CallbackName,
  type NamesOfKind,
  PRESENCE_ALL_USERS,
  type UpdateSlot,
  type UserPresenceState,
} from '@rookery/module-api';
import { isJsonObject, MatrixError } from '@rookery/matrix-types';
import { LogContext, SilentLogger, SystemClock } from '@rookery/platform';
import { gateAnswers, readUserIds, readUsersForStates } from './answers.js';
import { askInTurn, type Reading, tellSideBySide } from './calls.js';
import { isCallbackContext } from './context.js';
import { type ActingModule, EventChains } from './event-chains.js';
import { frozenCopy, plainCopy } from './isolation.js';
import { runAs } from './owner.js';
import {
  type Found,
  GateReading,
  MergeReading,
  NewsReading,
  ProvideReading,
  TransformReading,
  transformSteps,
  type TransformValues,
} from './readings.js';
import {
  EMPTY_REGISTRY,
  type Handler,
  type ModuleIdentityProvider,
  type ProviderFactory,
  type Providers,
  type SealedRegistry,
} from './registry.js';
import type { ModuleFigures } from './figures.js';
import type { MessageAnswers } from './message-answers.js';
import type { ModuleReport } from './report.js';
import type { TracedCall } from './trace.js';
import type { HostServices } from './services.js';
import { ALLOWED, type GateVerdict, refusalError, type TransformVerdict } from './verdict.js';
import { ModuleWatch } from './watch.js';
import { answerWebRequest, findWebResource, type WebAsker, webPrefix } from './web-resources.js';

/** The arguments of a callback without the context, which comes last. */
export type ArgsOf<Name extends CallbackName> = AllCallbacks[Name] extends (
  ...args: [...infer Args, CallbackContext]
) => unknown
  ? Args
  : never;

/** What a callback of the kind `provide` gives, when it gives something. */
export type Provided<Name extends CallbackName> = AllCallbacks[Name] extends (...args: never[]) => infer Result
  ? Exclude<Awaited<Result>, undefined | void>
  : never;

/** Time for what a module does when a batch of a background update is over. */
const releaseLimitMs = 30_000;

/**
 * Where the server asks its modules. Domains inject it and write
 *
 * ```ts
 * if (this.modules.has('userMayJoinRoom')) {
 *   assertAllowed(await this.modules.gate('userMayJoinRoom', callbackContext(requester), userId, roomId, isInvited));
 * }
 * ```
 *
 * Arguments are copied and frozen before a module sees them; events come from `toModuleEvent`, state from `toStateView`.
 */
export class ModuleDispatcher {
  readonly #watch: ModuleWatch;
  readonly #services: HostServices;
  /** How answers are read, made once: nothing of it depends on who asks. */
  readonly #gates: Readonly<Record<NamesOfKind<'gate'>, GateReading>>;
  readonly #transforms: Readonly<Record<NamesOfKind<'transform'>, TransformReading>>;
  readonly #provided: ProvideReading;
  readonly #told: NewsReading;
  /** Which events modules answer with which. */
  readonly chains: EventChains;
  #registry = EMPTY_REGISTRY;
  #reporter: (() => Promise<readonly ModuleReport[]>) | undefined;

  /** Without services it has the system's clock and no log: for tests of domains. */
  constructor(services: HostServices = { clock: new SystemClock(), log: new SilentLogger() }) {
    this.#services = services;
    this.chains = new EventChains(services.log, services.clock);
    const watch = (this.#watch = new ModuleWatch(services));
    this.#gates = each(gateAnswers, (meaning) => new GateReading(watch, meaning));
    this.#transforms = each(transformSteps, (step) => new TransformReading(watch, step));
    this.#provided = new ProvideReading(watch);
    this.#told = new NewsReading(watch);
  }

  /**
   * Puts a set of modules in force, at once and as a whole: calls under way end with the modules they began with. Gives
   * back what was in force before.
   */
  install(registry: SealedRegistry): SealedRegistry {
    const before = this.#registry;
    this.#registry = registry;
    return before;
  }

  /** What modules answer each other. */
  get messages(): MessageAnswers {
    return this.#registry.messages;
  }

  /** How the modules do, in the order of the settings; nothing where there is no host. */
  async report(): Promise<readonly ModuleReport[]> {
    return (await this.#reporter?.()) ?? [];
  }

  /** Shows every call of a module to somebody, until it is told otherwise: for those who write modules. */
  traceTo(trace: ((call: TracedCall) => void) | undefined): void {
    this.#watch.trace = trace;
  }

  /** Says who knows how the modules do. */
  reportFrom(reporter: () => Promise<readonly ModuleReport[]>): void {
    this.#reporter = reporter;
  }

  /** What is counted of modules, and which of their callbacks are in force. */
  get figures(): { readonly counted: ModuleFigures; readonly handlers: readonly Handler[] } {
    const { handlers, shadows } = this.#registry;
    return {
      counted: this.#watch.figures,
      handlers: [handlers, shadows].flatMap((some) => Object.values(some).flat()),
    };
  }

  /** Names of the loaded modules, in the order of the settings. */
  get modules(): readonly string[] {
    return this.#registry.modules;
  }

  /** What each module registered: callbacks by name and paths, in the order of the settings. */
  summary(): readonly {
    readonly module: string;
    readonly callbacks: readonly string[];
    readonly paths: readonly string[];
  }[] {
    const { modules, handlers, shadows, webResources } = this.#registry;
    return modules.map((module) => ({
      module,
      callbacks: [handlers, shadows]
        .flatMap((some) => Object.entries(some))
        .filter(([, registered]) => registered.some((handler) => handler.module === module))
        .map(([name]) => name),
      paths: webResources.filter((resource) => resource.module === module).map(({ path }) => path),
    }));
  }

  /** Whether any module registered the callback. Ask before preparing arguments: with no module this is all it costs. */
  has(name: CallbackName): boolean {
    const { handlers, shadows } = this.#registry;
    return handlers[name] !== undefined || shadows[name] !== undefined;
  }

  /** Asks whether something may happen. The first refusal, in the order of the settings, wins. Never rejects. */
  gate<Name extends NamesOfKind<'gate'>>(
    name: Name,
    context: CallbackContext,
    ...args: ArgsOf<Name>
  ): Promise<GateVerdict> {
    const { handlers, shadows } = this.#registry;
    const judging = handlers[name];
    if (shadows[name]) this.#judgeInShadow(shadows[name], prepare([...args], context), this.#gates[name]);
    if (!judging) return allowed;
    return askInTurn(this.#watch, judging, prepare(args, context), this.#gates[name]);
  }

  /** Lets each module change a value in turn. A refusal ends it. Never rejects. */
  transform<Name extends NamesOfKind<'transform'>>(
    name: Name,
    context: CallbackContext,
    ...args: ArgsOf<Name>
  ): Promise<TransformVerdict<TransformValues[Name]>> {
    const { handlers, shadows } = this.#registry;
    return this.#changed(handlers[name], shadows[name], name, context, args);
  }

  /** As {@link transform}, for what a module does: that one is not asked, and what the others do meanwhile answers it. */
  transformByOthers<Name extends NamesOfKind<'transform'>>(
    { module, length }: ActingModule,
    name: Name,
    context: CallbackContext,
    ...args: ArgsOf<Name>
  ): Promise<TransformVerdict<TransformValues[Name]>> {
    const others = (registered: readonly Handler[] = []): readonly Handler[] | undefined => {
      const found = registered.filter((handler) => handler.module !== module);
      return found.length > 0 ? found : undefined;
    };
    const { handlers, shadows } = this.#registry;
    return this.chains.answering(length, () =>
      this.#changed(others(handlers[name]), others(shadows[name]), name, context, args),
    );
  }

  #changed<Name extends NamesOfKind<'transform'>>(
    handlers: readonly Handler[] | undefined,
    shadows: readonly Handler[] | undefined,
    name: Name,
    context: CallbackContext,
    args: ArgsOf<Name>,
  ): Promise<TransformVerdict<TransformValues[Name]>> {
    const reading = this.#transforms[name] as Reading<TransformVerdict<TransformValues[Name]>>;
    if (shadows) this.#judgeInShadow(shadows, prepare([...args], context), reading);
    if (!handlers) {
      return Promise.resolve({ allowed: true, value: args[transformSteps[name].argument] as TransformValues[Name] });
    }
    return askInTurn(this.#watch, handlers, prepare(args, context), reading);
  }

  /**
   * Asks for something; the first answer wins. `undefined` when no module has one.
   * @throws MatrixError what a module threw on purpose; 500 `M_UNKNOWN` when one failed and its entry does not allow that
   */
  async provide<Name extends Exclude<NamesOfKind<'provide'>, 'authCheckers' | 'check3pidAuth'>>(
    name: Name,
    context: CallbackContext,
    ...args: ArgsOf<Name>
  ): Promise<Provided<Name> | undefined> {
    const handlers = this.#registry.handlers[name];
    if (!handlers) return undefined;
    const found = await this.#firstAnswer(handlers, prepare(args, context));
    const answer =
      found && name === 'onUpdate' ? this.#guardedSlot(found.handler, found.answer as UpdateSlot) : found?.answer;
    return answer as Provided<Name> | undefined;
  }

  /** Login types that modules check, with the fields each needs. */
  get loginTypes(): ReadonlyMap<string, { readonly fields: readonly string[] }> {
    return this.#registry.loginTypes;
  }

  /**
   * Asks the modules that check a login type. `undefined` when none of them knows the user or the proof is wrong.
   * @param loginDict only the fields of {@link loginTypes}
   * @throws MatrixError as {@link provide}
   */
  async checkAuth(
    context: CallbackContext,
    username: string,
    loginType: string,
    loginDict: Readonly<Record<string, unknown>>,
  ): Promise<AuthSuccess | undefined> {
    const type = this.#registry.loginTypes.get(loginType);
    if (!type) return undefined;
    const found = await this.#firstAnswer(type.handlers, prepare([username, loginType, loginDict], context));
    return found && this.#guardedSuccess(found.handler, found.answer as AuthSuccess);
  }

  /** As {@link provide} for `check3pidAuth`; what is to be told after the login cannot fail it. */
  async check3pidAuth(
    context: CallbackContext,
    medium: string,
    address: string,
    password: string,
  ): Promise<AuthSuccess | undefined> {
    const handlers = this.#registry.handlers.check3pidAuth;
    if (!handlers) return undefined;
    const found = await this.#firstAnswer(handlers, prepare([medium, address, password], context));
    return found && this.#guardedSuccess(found.handler, found.answer as AuthSuccess);
  }

  /** Who else gets these presence updates: the union of all answers. @throws MatrixError as {@link provide} */
  async getUsersForStates(
    context: CallbackContext,
    stateUpdates: readonly UserPresenceState[],
  ): Promise<ReadonlyMap<string, ReadonlySet<UserPresenceState>>> {
    const united = new Map<string, Map<string, UserPresenceState>>();
    const expected = 'a Map of user ids to presence states';
    await this.#merge('getUsersForStates', expected, context, [stateUpdates], (answer) => {
      const users = readUsersForStates(answer);
      for (const [userId, states] of users ?? []) {
        const known = united.get(userId) ?? new Map<string, UserPresenceState>();
        for (const state of states) known.set(state.userId, state);
        united.set(userId, known);
      }
      return users !== undefined;
    });
    return new Map([...united].map(([userId, states]) => [userId, new Set(states.values())]));
  }

  /** Whose presence this user gets too: the union of all answers. @throws MatrixError as {@link provide} */
  async getInterestedUsers(
    context: CallbackContext,
    userId: string,
  ): Promise<ReadonlySet<string> | typeof PRESENCE_ALL_USERS> {
    const united = new Set<string>();
    let all = false;
    await this.#merge('getInterestedUsers', 'user ids or PRESENCE_ALL_USERS', context, [userId], (answer) => {
      if (answer === PRESENCE_ALL_USERS) return (all = true);
      const userIds = readUserIds(answer);
      for (const interested of userIds ?? []) united.add(interested);
      return userIds !== undefined;
    });
    return all ? PRESENCE_ALL_USERS : united;
  }

  /**
   * Fields that modules add to an event's `unsigned`; of one field the later module's. The caller's own fields come first.
   * @throws MatrixError as {@link provide}
   */
  async addFieldToUnsigned(
    context: CallbackContext,
    ...args: ArgsOf<'addFieldToUnsigned'>
  ): Promise<Readonly<Record<string, unknown>>> {
    const united: Record<string, unknown> = {};
    await this.#merge('addFieldToUnsigned', 'an object', context, args, (answer) => {
      if (!isJsonObject(answer)) return false;
      Object.assign(united, plainCopy(answer));
      return true;
    });
    return united;
  }

  /** Tells all modules, side by side. Resolves when all have finished or used up their time; never rejects. */
  notify<Name extends NamesOfKind<'notify'>>(
    name: Name,
    context: CallbackContext,
    ...args: ArgsOf<Name>
  ): Promise<void> {
    const handlers = this.#registry.handlers[name];
    if (!handlers) return Promise.resolve();
    const tell = (): Promise<void> => tellSideBySide(this.#watch, handlers, prepare(args, context), this.#told);
    if (name !== 'onNewEvent') return tell();
    const [{ eventId }] = args as unknown as ArgsOf<'onNewEvent'>;
    return this.chains.telling(eventId, tell);
  }

  /** Paths below which modules answer requests: what stands before the first parameter. No path twice. */
  get webPrefixes(): readonly string[] {
    return [...new Set(this.#registry.webResources.map(webPrefix))];
  }

  /**
   * Lets the module that has the request's path answer. Never rejects: no module is 404, what goes wrong an error answer.
   * The request's URL has the standard service prefix.
   */
  async answerWeb(request: Request, asker: WebAsker = {}): Promise<Response> {
    const found = findWebResource(this.#registry.webResources, new URL(request.url).pathname);
    if (!found) return Response.json(MatrixError.unrecognized().toBody(), { status: 404 });
    const context = {
      requestId: LogContext.current()?.requestId,
      ip: asker.ip,
      userAgent: request.headers.get('user-agent') ?? undefined,
      params: found.params,
    };
    return answerWebRequest(this.#services, found.resource, request, context, asker);
  }

  /** What a module provides under a name that the settings refer to. */
  provider<Kind extends keyof Providers>(kind: Kind, name: string): ProviderFactory<Kind> | undefined {
    return this.#registry.providers[kind].get(name);
  }

  /** The places where people sign on that modules registered, by id. Another map after every reload. */
  get identityProviders(): ReadonlyMap<string, ModuleIdentityProvider> {
    return this.#registry.identityProviders;
  }

  /** Asks judges of whom nobody waits for an answer, each by itself, and writes down what they would have refused. */
  #judgeInShadow(
    shadows: readonly Handler[],
    given: readonly unknown[],
    reading: Reading<GateVerdict | TransformVerdict<unknown>>,
  ): void {
    for (const handler of shadows) {
      askInTurn(this.#watch, [handler], [...given], reading).then(
        (verdict) => {
          if (!verdict.allowed && !verdict.failed) this.#watch.shadowed(handler, given, verdict);
        },
        () => {},
      );
    }
  }

  async #firstAnswer(handlers: readonly Handler[], given: unknown[]): Promise<Found | undefined> {
    const found = await askInTurn(this.#watch, handlers, given, this.#provided);
    if (found && 'allowed' in found) throw refusalError(found);
    return found;
  }

  async #merge(
    name: NamesOfKind<'merge'>,
    expected: string,
    context: CallbackContext,
    args: unknown[],
    take: (answer: unknown) => boolean,
  ): Promise<void> {
    const handlers = this.#registry.handlers[name];
    if (!handlers) return;
    const reading = new MergeReading(this.#watch, expected, take);
    const failed = await askInTurn(this.#watch, handlers, prepare(args, context), reading);
    if (failed) throw refusalError(failed);
  }

  #guardedSuccess(handler: Handler, { userId, onLogin }: AuthSuccess): AuthSuccess {
    if (!onLogin) return { userId };
    return { userId, onLogin: (response) => this.#afterwards(handler, () => onLogin(frozenCopy(response))) };
  }

  #guardedSlot(handler: Handler, { durationMs, release }: UpdateSlot): UpdateSlot {
    if (!release) return { durationMs };
    // It was long on purpose; what comes after it is not.
    const hurried = { ...handler, timeLimitMs: releaseLimitMs };
    return { durationMs, release: () => this.#afterwards(hurried, release) };
  }

  /** Calls what a module gave with its answer. Never rejects: the answer has taken effect. */
  #afterwards(handler: Handler, fn: () => unknown): Promise<void> {
    const call = (): unknown => runAs(handler.owner, fn);
    return tellSideBySide(this.#watch, [{ ...handler, call }], [], this.#told);
  }
}

const allowed: Promise<GateVerdict> = Promise.resolve(ALLOWED);

const each = <Name extends string, From, To>(
  table: Readonly<Record<Name, From>>,
  make: (from: From) => To,
): Readonly<Record<Name, To>> =>
  Object.fromEntries(Object.entries<From>(table).map(([name, from]) => [name, make(from)])) as Record<Name, To>;

/** @param given becomes what modules are given: an array that nobody else has */
function prepare(given: unknown[], context: CallbackContext): unknown[] {
  for (let i = 0; i < given.length; i++) given[i] = frozenCopy(given[i]);
  given.push(isCallbackContext(context) ? context : frozenCopy(context));
  return given;
}
