import { MetadataScanner, ModulesContainer } from '@nestjs/core';
import {
  type AuthChecker,
  type CallbackCategories,
  type CallbackCategory,
  type CallbackContext,
  callbackTable,
  type ModuleApi,
  type ModuleEvent,
  registrationMethods,
  type RoomStateView,
} from '@rookery/module-api';
import { type Declared, declarationsOf, type MethodCallback } from './callbacks.js';

/** A method of a provider with what it was declared to answer. */
interface Found {
  readonly declared: Declared;
  /** Class and method, for errors. */
  readonly place: string;
  readonly run: (...args: never[]) => unknown;
}

type NewEventHandler = (event: ModuleEvent, state: RoomStateView, context: CallbackContext) => unknown;

/**
 * Registers every method of an application's providers and controllers that carries one of the decorators.
 * @param tell a further `onNewEvent`
 * @throws Error where two methods answer one callback that has one answer
 */
export function registerHandlers(container: ModulesContainer, api: ModuleApi, tell?: NewEventHandler): void {
  const found = [...findHandlers(container)];
  const callbacks = new Map<MethodCallback, Found[]>();
  const checkers: AuthChecker[] = [];
  for (const one of found) {
    const { declared, run } = one;
    if (declared.kind === 'callback') callbacks.set(declared.name, [...(callbacks.get(declared.name) ?? []), one]);
    else if (declared.kind === 'every') api.scheduler.every(declared.name, declared.periodMs, run as () => void);
    else if (declared.kind === 'job') api.scheduler.handle(declared.name, run as () => void);
    else {
      const { loginType, fields } = declared;
      checkers.push({ loginType, fields, check: run as unknown as AuthChecker['check'] });
    }
  }
  if (tell) {
    const declared = { kind: 'callback', name: 'onNewEvent' } as const;
    const told = { declared, place: 'MatrixEvents', run: tell as Found['run'] };
    callbacks.set('onNewEvent', [...(callbacks.get('onNewEvent') ?? []), told]);
  }
  const categories = new Map<CallbackCategory, Record<string, unknown>>();
  const inCategory = (category: CallbackCategory): Record<string, unknown> => {
    const known = categories.get(category) ?? {};
    categories.set(category, known);
    return known;
  };
  for (const [name, handlers] of callbacks) inCategory(callbackTable[name].category)[name] = one(name, handlers);
  if (checkers.length > 0) inCategory('passwordAuthProvider')['authCheckers'] = checkers;
  for (const [category, given] of categories) {
    (api[registrationMethods[category]] as (given: CallbackCategories[CallbackCategory]) => void)(given);
  }
}

function* findHandlers(container: ModulesContainer): Generator<Found> {
  const scanner = new MetadataScanner();
  const seen = new Set<object>();
  for (const { providers, controllers } of container.values()) {
    for (const wrapper of [...providers.values(), ...controllers.values()]) {
      const instance = wrapper.instance as object | null | undefined;
      const prototype = instance ? Object.getPrototypeOf(instance) : wrapper.metatype?.prototype;
      if (!prototype || prototype === Object.prototype) continue;
      for (const method of scanner.getAllMethodNames(prototype as object)) {
        const declared = declarationsOf((prototype as Record<string, object>)[method]!);
        if (declared.length === 0) continue;
        const place = `${wrapper.name}.${method}`;
        if (!instance || !wrapper.isDependencyTreeStatic()) {
          throw new Error(`${place} answers the server: its class and what that depends on cannot be made per request`);
        }
        const run = (instance as Record<string, (...args: never[]) => unknown>)[method]!.bind(instance);
        if (!seen.has(instance)) for (const each of declared) yield { declared: each, place, run };
      }
      if (instance) seen.add(instance);
    }
  }
}

/** One function for a callback: several may be told of something, but only one can answer. */
function one(name: MethodCallback, handlers: readonly Found[]): (...args: never[]) => unknown {
  const [first, second] = handlers;
  if (callbackTable[name].kind !== 'notify') {
    if (second) throw new Error(`${first!.place} and ${second.place} both answer ${name}: only one method can`);
    return first!.run;
  }
  const told = handlers.map(({ declared, run }) => {
    const types = declared.kind === 'callback' && declared.types && new Set(declared.types);
    if (!types) return run;
    return ((event: ModuleEvent, ...rest: unknown[]) =>
      types.has(event.type) ? (run as (...args: unknown[]) => unknown)(event, ...rest) : undefined) as Found['run'];
  });
  if (told.length === 1) return told[0]!;
  return async (...args) => {
    const results = await Promise.allSettled(told.map(async (run) => run(...args)));
    const errors = results.flatMap((result) => (result.status === 'rejected' ? [result.reason as unknown] : []));
    if (errors.length === 1) throw errors[0];
    if (errors.length > 1) throw new AggregateError(errors, errors.map(String).join('; '));
  };
}
