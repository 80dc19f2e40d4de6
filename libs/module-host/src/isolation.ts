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

/** What modules see of an event. Made once per event object. */
export function toModuleEvent(event: RoomEvent): ModuleEvent {
  const known = converted.get(event);
  if (known) return known;
  const result = frozenCopy<ModuleEvent>({
    eventId: event.eventId,
    roomId: event.roomId,
    roomVersion: event.rules.version,
    type: event.type,
    stateKey: event.stateKey,
    sender: event.sender,
    content: event.content,
    originServerTs: event.originServerTs,
    redacts: event.redacts,
    depth: event.depth,
    prevEventIds: event.prevEventIds,
    authEventIds: event.authEventIds,
    pdu: event.pdu,
  });
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
