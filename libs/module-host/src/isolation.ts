import type { RoomEvent } from '@rookery/events';
import type { ModuleEvent, RoomStateView } from '@rookery/module-api';

const finished = new WeakSet<object>();
const converted = new WeakMap<RoomEvent, ModuleEvent>();

const isPlain = (value: object): boolean => {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
};

/**
 * A copy of a JSON value that is frozen in every depth, so that no module can change what the server or the next module
 * sees. Anything but arrays and plain objects comes back as it is, as does what this function made before. Works without
 * recursion: what is nested deeply cannot overflow the stack.
 */
export function frozenCopy<T>(value: T): T {
  if (typeof value !== 'object' || value === null || finished.has(value)) return value;
  if (!Array.isArray(value) && !isPlain(value)) return value;
  const made: object[] = [];
  const copyOf = (source: object): object => {
    const copy: object = Array.isArray(source) ? new Array<unknown>(source.length) : {};
    made.push(copy);
    pending.push([source, copy]);
    return copy;
  };
  const pending: (readonly [object, object])[] = [];
  const top = copyOf(value);
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    const [source, copy] = next as [Record<string, unknown>, Record<string, unknown>];
    for (const key of Object.keys(source)) {
      const part = source[key];
      const nested =
        typeof part === 'object' && part !== null && !finished.has(part) && (Array.isArray(part) || isPlain(part));
      const result = nested ? copyOf(part) : part;
      // A key named __proto__ is data here, not a prototype.
      if (key === '__proto__') Object.defineProperty(copy, key, { value: result, enumerable: true });
      else copy[key] = result;
    }
  }
  for (const copy of made) Object.freeze(copy);
  finished.add(top);
  return top as T;
}

/** How much of a module's answer is read. */
const maxNodes = 100_000;
const maxDepth = 100;
const maxCharacters = 4_194_304;

/** A value is no JSON, or too much of it. */
export class NotPlainError extends Error {}

/**
 * What a module gave as data, copied and frozen: whatever the module does with its own object afterwards changes nothing.
 * Properties that are `undefined` are left out.
 * @throws NotPlainError for anything that JSON cannot carry, cycles, and what is too deep or too large; and whatever a
 *   getter or a proxy of the module throws
 */
export function plainCopy(value: unknown): unknown {
  let nodes = 0;
  let characters = 0;
  const made: object[] = [];
  const pending: { readonly source: object; readonly copy: object; readonly depth: number }[] = [];
  const take = (given: unknown, depth: number): unknown => {
    if (++nodes > maxNodes) throw new NotPlainError('too many values');
    switch (typeof given) {
      case 'boolean':
        return given;
      case 'string':
        characters += given.length;
        if (characters > maxCharacters) throw new NotPlainError('too much text');
        return given;
      case 'number':
        if (!Number.isFinite(given)) throw new NotPlainError('a number that JSON does not know');
        return given;
      case 'object': {
        if (given === null || finished.has(given)) return given;
        if (depth > maxDepth) throw new NotPlainError('too deep');
        const isList = Array.isArray(given);
        if (!isList && Object.prototype.toString.call(given) !== '[object Object]') {
          throw new NotPlainError('an object that is not plain');
        }
        const copy: object = isList ? [] : {};
        made.push(copy);
        pending.push({ source: given, copy, depth });
        return copy;
      }
      default:
        throw new NotPlainError(`a ${typeof given}`);
    }
  };
  const top = take(value, 0);
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    const { source, copy, depth } = next;
    if (Array.isArray(source)) {
      const { length } = source;
      if (length > maxNodes) throw new NotPlainError('too many values');
      for (let i = 0; i < length; i++) (copy as unknown[]).push(take(source[i], depth + 1));
      continue;
    }
    for (const key of Object.keys(source)) {
      const part = (source as Record<string, unknown>)[key];
      if (part === undefined) continue;
      characters += key.length;
      const result = take(part, depth + 1);
      if (key === '__proto__') Object.defineProperty(copy, key, { value: result, enumerable: true });
      else (copy as Record<string, unknown>)[key] = result;
    }
  }
  for (const copy of made) Object.freeze(copy);
  if (made[0]) finished.add(made[0]);
  return top;
}

/** What modules see of an event. Made once per event object; the PDU is copied when a module looks at it. */
export function toModuleEvent(event: RoomEvent): ModuleEvent {
  const known = converted.get(event);
  if (known) return known;
  const content = frozenCopy(event.content);
  let pdu: ModuleEvent['pdu'] | undefined;
  const result: ModuleEvent = Object.freeze({
    eventId: event.eventId,
    roomId: event.roomId,
    roomVersion: event.rules.version,
    type: event.type,
    stateKey: event.stateKey,
    sender: event.sender,
    content,
    originServerTs: event.originServerTs,
    redacts: event.redacts,
    depth: event.depth,
    prevEventIds: frozenCopy(event.prevEventIds),
    authEventIds: frozenCopy(event.authEventIds),
    get pdu() {
      return (pdu ??= frozenCopy({ ...event.pdu }));
    },
  });
  finished.add(result);
  converted.set(event, result);
  return result;
}

/** Reads of a room's state at one point, as a domain offers them. */
export interface StateReader {
  get(type: string, stateKey: string): Promise<RoomEvent | undefined>;
  ofType(type: string): Promise<readonly RoomEvent[]>;
  all(): Promise<readonly RoomEvent[]>;
}

/** Offers a room's state to modules: nothing is read before a module asks. */
export function toStateView(reader: StateReader): RoomStateView {
  return Object.freeze({
    async get(type: string, stateKey = ''): Promise<ModuleEvent | undefined> {
      const event = await reader.get(type, stateKey);
      return event && toModuleEvent(event);
    },
    ofType: async (type: string): Promise<readonly ModuleEvent[]> => (await reader.ofType(type)).map(toModuleEvent),
    all: async (): Promise<readonly ModuleEvent[]> => (await reader.all()).map(toModuleEvent),
  });
}
