import {
  type AllCallbacks,
  type AuthSuccess,
  type CallbackContext,
  type CallbackName,
  type EventAllowed,
  type ModuleEventDraft,
  type NamesOfKind,
  PRESENCE_ALL_USERS,
  type UpdateSlot,
  type UserPresenceState,
} from '@rookery/module-api';
import { isJsonObject, MatrixError } from '@rookery/matrix-types';
import { LogContext, SilentLogger, SystemClock } from '@rookery/platform';
import {
  gateAnswers,
  providedAnswers,
  readRefusal,
  readUserIds,
  readUsersForStates,
  refusalOfError,
} from './answers.js';
import { ModuleCaller } from './caller.js';
import type { HostServices } from './services.js';
import { frozenCopy, plainCopy } from './isolation.js';
import { EMPTY_REGISTRY, type Handler, type ProviderFactory, type Providers, type SealedRegistry } from './registry.js';
import { ALLOWED, type GateVerdict, refusalError, type Refused, type TransformVerdict } from './verdict.js';
import { answerWebRequest, findWebResource, webPrefix } from './web-resources.js';

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

/** Which argument a transform changes, and what it becomes. */
interface TransformStep {
  readonly argument: number;
  /** The new value, a refusal, or `undefined` for rubbish. */
  readonly apply: (
    value: unknown,
    answer: unknown,
  ) => { readonly value: unknown } | Pick<Refused, 'status' | 'errcode' | 'message' | 'extra' | 'effect'> | undefined;
  readonly expected: string;
}

const transformSteps: Readonly<Record<NamesOfKind<'transform'>, TransformStep>> = {
  checkEventAllowed: {
    argument: 0,
    expected: 'true, false, { allowed: true, replacement: { content } } for a local event, or { allowed: false }',
    apply(value, answer) {
      if (answer === true) return { value };
      if (answer === false) return readRefusal({});
      if (!isJsonObject(answer)) return undefined;
      const given = plainCopy(answer) as Exclude<EventAllowed, boolean>;
      if (!given.allowed) return given.allowed === false ? readRefusal(given) : undefined;
      if (given.allowed !== true) return undefined;
      if (given.replacement === undefined) return { value };
      const draft = value as ModuleEventDraft;
      if (draft.eventId !== undefined || !isJsonObject(given.replacement?.content)) return undefined;
      return { value: frozenCopy({ ...draft, content: given.replacement.content }) };
    },
  },
  onCreateRoom: {
    argument: 1,
    expected: 'a replacement for the request, or nothing',
    apply(value, answer) {
      if (answer == null) return { value };
      return isJsonObject(answer) ? { value: plainCopy(answer) } : undefined;
    },
  },
};

/** Time for what a module does when a batch of a background update is over. */
const releaseLimitMs = 30_000;

/** What each transform hands on. */
export interface TransformValues {
  checkEventAllowed: ModuleEventDraft;
  onCreateRoom: Readonly<Record<string, unknown>>;
}

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
  readonly #caller: ModuleCaller;
  readonly #services: HostServices;
  #registry = EMPTY_REGISTRY;

  /** Without services it has the system's clock and no log: for tests of domains. */
  constructor(services: HostServices = { clock: new SystemClock(), log: new SilentLogger() }) {
    this.#services = services;
    this.#caller = new ModuleCaller(services);
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
    const { modules, handlers, webResources } = this.#registry;
    return modules.map((module) => ({
      module,
      callbacks: Object.entries(handlers)
        .filter(([, registered]) => registered.some((handler) => handler.module === module))
        .map(([name]) => name),
      paths: webResources.filter((resource) => resource.module === module).map(({ path }) => path),
    }));
  }

  /** Whether any module registered the callback. Ask before preparing arguments: with no module this is all it costs. */
  has(name: CallbackName): boolean {
    return this.#registry.handlers[name] !== undefined;
  }

  /** Asks whether something may happen. The first refusal, in the order of the settings, wins. Never rejects. */
  async gate<Name extends NamesOfKind<'gate'>>(
    name: Name,
    context: CallbackContext,
    ...args: ArgsOf<Name>
  ): Promise<GateVerdict> {
    const handlers = this.#registry.handlers[name];
    if (!handlers) return ALLOWED;
    const given = prepare(args, context);
    let shadowBan = false;
    for (const handler of handlers) {
      const startedAtMs = this.#services.clock.monotonicMs();
      const result = await this.#caller.call(handler, given, startedAtMs);
      if (result.kind === 'failed') {
        if (handler.onError === 'deny') return failure(handler);
        continue;
      }
      if (result.kind === 'thrown') {
        const refused = this.#thrown(handler, result.error, startedAtMs);
        if (refused) return refused;
        continue;
      }
      const read = attempt(() => gateAnswers[name](result.answer)) ?? unreadable;
      if (read.deprecated !== undefined) this.#caller.deprecated(handler, read.deprecated);
      if (read.kind === 'invalid') {
        this.#caller.invalid(handler, result.answer, read.expected, startedAtMs);
        if (handler.onError === 'deny') return failure(handler);
      } else if (read.kind === 'refuse') {
        this.#caller.done(handler, 'refused', startedAtMs);
        return { allowed: false, ...read.refusal, module: handler.module, failed: false };
      } else {
        this.#caller.done(handler, 'ok', startedAtMs);
        // The first answer other than "allow" wins.
        if (read.kind === 'shadowBan') {
          shadowBan = true;
          break;
        }
      }
    }
    return shadowBan ? { allowed: true, shadowBan } : ALLOWED;
  }

  /** Lets each module change a value in turn. A refusal ends it. Never rejects. */
  async transform<Name extends NamesOfKind<'transform'>>(
    name: Name,
    context: CallbackContext,
    ...args: ArgsOf<Name>
  ): Promise<TransformVerdict<TransformValues[Name]>> {
    const step = transformSteps[name];
    const handlers = this.#registry.handlers[name];
    if (!handlers) return { allowed: true, value: args[step.argument] as TransformValues[Name] };
    const given = prepare(args, context);
    for (const handler of handlers) {
      const startedAtMs = this.#services.clock.monotonicMs();
      const result = await this.#caller.call(handler, given, startedAtMs);
      if (result.kind === 'failed') {
        if (handler.onError === 'deny') return failure(handler);
        continue;
      }
      if (result.kind === 'thrown') {
        const refused = this.#thrown(handler, result.error, startedAtMs);
        if (refused) return refused;
        continue;
      }
      const next = attempt(() => step.apply(given[step.argument], result.answer));
      if (next === undefined) {
        this.#caller.invalid(handler, result.answer, step.expected, startedAtMs);
        if (handler.onError === 'deny') return failure(handler);
      } else if ('value' in next) {
        this.#caller.done(handler, 'ok', startedAtMs);
        given[step.argument] = next.value;
      } else {
        this.#caller.done(handler, 'refused', startedAtMs);
        return { allowed: false, ...next, module: handler.module, failed: false };
      }
    }
    return { allowed: true, value: given[step.argument] as TransformValues[Name] };
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
  async notify<Name extends NamesOfKind<'notify'>>(
    name: Name,
    context: CallbackContext,
    ...args: ArgsOf<Name>
  ): Promise<void> {
    const handlers = this.#registry.handlers[name];
    if (!handlers) return;
    const given = prepare(args, context);
    await Promise.all(
      handlers.map(async (handler) => {
        const startedAtMs = this.#services.clock.monotonicMs();
        const result = await this.#caller.call(handler, given, startedAtMs);
        if (result.kind === 'thrown') this.#caller.broken(handler, result.error, startedAtMs);
        if (result.kind === 'answer') this.#caller.done(handler, 'ok', startedAtMs);
      }),
    );
  }

  /** Paths below which modules answer requests: what stands before the first parameter. No path twice. */
  get webPrefixes(): readonly string[] {
    return [...new Set(this.#registry.webResources.map(webPrefix))];
  }

  /**
   * Lets the module that has the request's path answer. Never rejects: no module is 404, what goes wrong an error answer.
   * The request's URL has the standard service prefix.
   */
  async answerWeb(request: Request, details: { readonly ip?: string } = {}): Promise<Response> {
    const found = findWebResource(this.#registry.webResources, new URL(request.url).pathname);
    if (!found) return Response.json(MatrixError.unrecognized().toBody(), { status: 404 });
    return answerWebRequest(this.#services, found.resource, request, {
      requestId: LogContext.current()?.requestId,
      ip: details.ip,
      userAgent: request.headers.get('user-agent') ?? undefined,
      params: found.params,
    });
  }

  /** What a module provides under a name that the settings refer to. */
  provider<Kind extends keyof Providers>(kind: Kind, name: string): ProviderFactory<Providers[Kind]> | undefined {
    return this.#registry.providers[kind].get(name);
  }

  async #firstAnswer(
    handlers: readonly Handler[],
    given: readonly unknown[],
  ): Promise<{ readonly handler: Handler; readonly answer: unknown } | undefined> {
    for (const handler of handlers) {
      const startedAtMs = this.#services.clock.monotonicMs();
      const result = await this.#caller.call(handler, given, startedAtMs);
      if (result.kind === 'failed') {
        if (handler.onError === 'deny') throw refusalError(failure(handler));
      } else if (result.kind === 'thrown') {
        const refused = this.#thrown(handler, result.error, startedAtMs);
        if (refused) throw refusalError(refused);
      } else if (result.answer == null) {
        this.#caller.done(handler, 'ok', startedAtMs);
      } else {
        const { read, expected } = providedAnswers[handler.callback as NamesOfKind<'provide'>];
        const answer = attempt(() => read(result.answer));
        if (answer !== undefined) {
          this.#caller.done(handler, 'ok', startedAtMs);
          return { handler, answer };
        }
        this.#caller.invalid(handler, result.answer, expected, startedAtMs);
        if (handler.onError === 'deny') throw refusalError(failure(handler));
      }
    }
    return undefined;
  }

  async #merge(
    name: NamesOfKind<'merge'>,
    expected: string,
    context: CallbackContext,
    args: readonly unknown[],
    take: (answer: unknown) => boolean,
  ): Promise<void> {
    const given = prepare(args, context);
    for (const handler of this.#registry.handlers[name] ?? []) {
      const startedAtMs = this.#services.clock.monotonicMs();
      const result = await this.#caller.call(handler, given, startedAtMs);
      if (result.kind === 'answer' && attempt(() => take(result.answer))) {
        this.#caller.done(handler, 'ok', startedAtMs);
        continue;
      }
      if (result.kind === 'answer') this.#caller.invalid(handler, result.answer, expected, startedAtMs);
      if (result.kind === 'thrown') this.#caller.broken(handler, result.error, startedAtMs);
      if (handler.onError === 'deny') throw refusalError(failure(handler));
    }
  }

  /** A `MatrixError` of a module: a refusal, or a failure when its status is the server's fault. */
  #thrown(handler: Handler, error: MatrixError, startedAtMs: number): Refused | undefined {
    const refusal = attempt(() => refusalOfError(error));
    if (refusal) {
      this.#caller.done(handler, 'refused', startedAtMs);
      return { allowed: false, ...refusal, module: handler.module, failed: false };
    }
    this.#caller.broken(handler, error, startedAtMs);
    return handler.onError === 'deny' ? failure(handler) : undefined;
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
  async #afterwards(handler: Handler, fn: () => unknown): Promise<void> {
    const startedAtMs = this.#services.clock.monotonicMs();
    const result = await this.#caller.call({ ...handler, call: fn }, [], startedAtMs);
    if (result.kind === 'thrown') this.#caller.broken(handler, result.error, startedAtMs);
  }
}

/** What reading an answer gives; `undefined` when a getter or a proxy of the module throws, or it is no data. */
function attempt<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}

const unreadable = { kind: 'invalid', expected: 'a value that can be read', deprecated: undefined } as const;

function prepare(args: readonly unknown[], context: CallbackContext): unknown[] {
  const given: unknown[] = args.map(frozenCopy);
  given.push(Object.isFrozen(context) ? context : frozenCopy(context));
  return given;
}

/** The client learns that something broke, not what: names and reasons are in the log. */
const failure = (handler: Handler): Refused => ({
  allowed: false,
  effect: 'refuse',
  status: 500,
  errcode: 'M_UNKNOWN',
  message: 'A module of this server failed',
  extra: {},
  module: handler.module,
  failed: true,
});
