import {
  type CallbackCategories,
  type CallbackCategory,
  type ModuleApi,
  type RegistrationApi,
  registrationMethods,
  type ScheduledCall,
} from '@rookery/module-api';
import type { Clock, Metrics } from '@rookery/platform';
import { type CallOrigin, passedToWriter } from './at-writer.js';
import type { ModuleCaches } from './caches.js';
import { type ModuleCapabilities, type ScopedName, type SharedCapabilities, sharedNames } from './capabilities.js';
import type { EventChains } from './event-chains.js';
import type { MessageAnswers } from './message-answers.js';
import { forgetCached, messagesOf, type ModuleQuestions, questionsWaiting } from './messages.js';
import { withoutEffect } from './shadow.js';
import type { LoadedModule } from './loader.js';
import { runAsServer } from './owner.js';
import type { ModuleRegistry } from './registry.js';
import type { ModuleScope } from './scope.js';
import { metricsOf } from './module-metrics.js';
import { federationOf, logOf, schedulerOf, storeOf } from './scoped-services.js';

/** Does one thing to the registry; kept, so that the same can be done to the next one. */
export type Contribution = (registry: ModuleRegistry) => void;

/** What the facade of one module is made from. */
export interface FacadeParts {
  readonly loaded: LoadedModule;
  readonly scope: ModuleScope;
  readonly capabilities: ModuleCapabilities;
  readonly caches: ModuleCaches;
  readonly clock: Clock;
  readonly metrics: Metrics | undefined;
  readonly chains: EventChains;
  readonly questions: ModuleQuestions;
  /** What modules answer that have registered before, while this one does. */
  readonly answersSoFar: () => MessageAnswers | undefined;
  /** Takes a registration; throws when its time is over. */
  readonly contribute: (method: string, contribution: Contribution) => void;
}

/** The API of one module: frozen, and tied to its name. */
export function createModuleApi(parts: FacadeParts): ModuleApi {
  const { loaded, capabilities, chains, scope, contribute } = parts;
  const { writer } = capabilities;
  const own: ModuleApi = {
    ...registrations(parts),
    ...shared(capabilities.shared),
    ...scoped(parts),
    ...sending(parts),
  };
  const { name } = loaded.definition;
  const api = writer
    ? passedToWriter(own, (path, args) => runAsServer(() => writer.call(name, path, args, originOf(chains))))
    : own;
  return Object.freeze(loaded.entry.shadow ? withoutEffect(api, scope, contribute) : api);
}

/** Of what runs no code of modules. */
const nothing: CallOrigin = { events: 0, questions: 0 };

const originOf = (chains: EventChains): CallOrigin => ({ events: chains.length, questions: questionsWaiting() });

/** Each copy that asks its copies asks several: a ring of those grows with every round, and has to end sooner. */
const asToCopies = (chains: EventChains): CallOrigin => ({ ...originOf(chains), questions: questionsWaiting() + 3 });

function registrations({ loaded, contribute }: FacadeParts): RegistrationApi {
  const { name } = loaded.definition;
  const callbacks =
    <Category extends CallbackCategory>(category: Category) =>
    (given: CallbackCategories[Category]): void =>
      contribute(registrationMethods[category], (registry) => registry.add(name, loaded.entry, category, given));
  return {
    registerSpamCheckerCallbacks: callbacks('spamChecker'),
    registerThirdPartyRulesCallbacks: callbacks('thirdPartyRules'),
    registerPasswordAuthProviderCallbacks: callbacks('passwordAuthProvider'),
    registerAccountValidityCallbacks: callbacks('accountValidity'),
    registerPresenceRouterCallbacks: callbacks('presenceRouter'),
    registerAccountDataCallbacks: callbacks('accountData'),
    registerAddExtraFieldsToUnsignedClientEventCallbacks: callbacks('unsignedFields'),
    registerMediaRepositoryCallbacks: callbacks('mediaRepository'),
    registerRatelimitCallbacks: callbacks('ratelimit'),
    registerFederationCallbacks: callbacks('federation'),
    registerBackgroundUpdateControllerCallbacks: callbacks('backgroundUpdateController'),
    registerWebResource: (path, handler) =>
      contribute('registerWebResource', (registry) => registry.addWebResource(name, path, handler)),
    registerIdentityProvider: (provider) =>
      contribute('registerIdentityProvider', (registry) => registry.addIdentityProvider(name, provider)),
    registerMediaStorageProvider: (provider, create) =>
      contribute('registerMediaStorageProvider', (registry) =>
        registry.addProvider(name, 'mediaStorage', provider, create),
      ),
    registerOidcMappingProvider: (provider, create) =>
      contribute('registerOidcMappingProvider', (registry) =>
        registry.addProvider(name, 'oidcMapping', provider, create),
      ),
    registerSamlMappingProvider: (provider, create) =>
      contribute('registerSamlMappingProvider', (registry) =>
        registry.addProvider(name, 'samlMapping', provider, create),
      ),
  };
}

/** Answers at once, so that nothing can come of them later. */
const immediate: ReadonlySet<string> = new Set([
  'isMine',
  'getQualifiedUserId',
  'urlOf',
  'shouldRunBackgroundTasks',
  'checkPushRuleActions',
]);

/** The app's methods, callable without their object. What they begin is the server's. */
function shared(capabilities: SharedCapabilities): SharedCapabilities {
  const copied: Record<string, unknown> = {};
  for (const name of sharedNames) {
    const value: unknown = capabilities[name];
    const method = typeof value === 'function' && (value.bind(capabilities) as (...args: unknown[]) => unknown);
    if (!method) copied[name] = value;
    else if (immediate.has(name)) copied[name] = method;
    else copied[name] = (...args: unknown[]) => runAsServer(method, ...args);
  }
  return copied as unknown as SharedCapabilities;
}

/** What makes events and rooms, about which other modules are asked, and which may be answers to others. */
function sending({
  loaded,
  capabilities,
  chains,
}: FacadeParts): Pick<ModuleApi, 'createAndSendEventIntoRoom' | 'updateRoomMembership' | 'createRoom'> {
  const { name } = loaded.definition;
  const server = capabilities.shared;
  return {
    createAndSendEventIntoRoom: (...args) =>
      chains.sending(name, () => runAsServer(() => server.createAndSendEventIntoRoom(...args))),
    updateRoomMembership: (...args) =>
      chains.sending(name, () => runAsServer(() => server.updateRoomMembership(...args))),
    createRoom: (...args) => chains.acting(name, () => runAsServer(() => server.createRoom(...args))),
  };
}

function scoped(parts: FacadeParts): Pick<ModuleApi, ScopedName> {
  const { loaded, scope, capabilities, caches, clock, metrics, contribute } = parts;
  const { name } = loaded.definition;
  const assertRegistering = (method: string): void => contribute(method, () => {});
  let isWarned = false;
  // One in a thread has its caches there.
  if (!loaded.thread)
    contribute('registerCachedFunction', (registry) =>
      registry.addMessageAnswer(name, loaded.entry, forgetCached, caches.forgetFor(name)),
    );
  return {
    moduleName: name,
    store: storeOf(name, capabilities.documents),
    messages: messagesOf(
      name,
      parts.questions,
      (question, payload) => capabilities.copies.ask(name, question, payload, asToCopies(parts.chains)),
      (question, answer) =>
        contribute('messages.answer', (registry) => registry.addMessageAnswer(name, loaded.entry, question, answer)),
      parts.answersSoFar,
    ),
    scheduler: schedulerOf(scope, capabilities.jobs, assertRegistering),
    metrics: metricsOf(scope, metrics),
    log: logOf(scope),
    federation: federationOf(name, loaded.entry.allowFederationTo, capabilities.federation),
    runDbInteraction: (description, work) => capabilities.tables.run(name, description, work),
    async migrate(migrations) {
      assertRegistering('migrate');
      await capabilities.tables.migrate(name, migrations);
    },
    registerCachedFunction: (cache, load, options) => caches.register(cache, load, options),
    async invalidateCache(cache, key) {
      caches.forget(cache, key);
      await capabilities.copies.ask(name, forgetCached, { cache, key }, nothing);
    },
    loopingBackgroundCall(fn, periodMs, { description = 'loop', runOnAllInstances = false } = {}) {
      checkTime(periodMs);
      if (!runOnAllInstances && !capabilities.shared.shouldRunBackgroundTasks()) return { cancel: () => {} };
      let running = false;
      const timer = clock.every(Math.max(1, periodMs), () => {
        if (running) return;
        running = true;
        void scope.run(description, fn).finally(() => (running = false));
      });
      return ending(scope, () => timer.cancel());
    },
    delayedBackgroundCall(delayMs, fn, { description = 'delayed call' } = {}) {
      checkTime(delayMs);
      const timer = clock.after(Math.max(0, delayMs), () => {
        call.cancel();
        void scope.run(description, fn);
      });
      const call = ending(scope, () => timer.cancel());
      return call;
    },
    runAsBackgroundProcess: (description, fn) => void scope.run(description, fn),
    onStop: (fn) => scope.add(fn),
    sleep: (delayMs) => clock.sleep(delayMs, scope.signal),
    getCurrentTimeMsec: () => clock.nowMs(),
    completeSsoLogin(...login) {
      if (!isWarned) scope.log.warn('completeSsoLogin is deprecated: use completeSsoLoginAsync', { module: name });
      isWarned = true;
      return runAsServer(() => capabilities.shared.completeSsoLoginAsync(...login));
    },
  };
}

/** Timers take anything, and what is no number for no time at all. */
function checkTime(ms: number): void {
  if (typeof ms !== 'number' || Number.isNaN(ms)) throw new RangeError('A time is a number of milliseconds');
}

function ending(scope: ModuleScope, cancel: () => void): ScheduledCall {
  const forget = scope.add(cancel);
  return {
    cancel() {
      forget();
      cancel();
    },
  };
}
