import type { RoomEvent } from '@rookery/events';
import type { ModuleEvent, ModuleEventDraft, RoomStateView } from '@rookery/module-api';

const isPlain = (value: object): boolean => {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
};

/** As deep as JSON of this server ever is; what is deeper is copied without recursion, which could overflow the stack. */
const usualDepth = 60;

/**
 * A copy of a JSON value that is frozen in every depth, so that no module can change what the server or the next module
 * sees. Anything but arrays and plain objects comes back as it is.
 */
export function frozenCopy<T>(value: T): T {
  return copyInto(value, usualDepth) as T;
}

// Written for the engine: going through a copy by `for in` while it is changed makes optimized code give up again and again.
function copyInto(value: unknown, depthLeft: number): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) {
    if (depthLeft === 0) return copyWithoutRecursion(value);
    const copy = (value as unknown[]).slice();
    for (let i = 0; i < copy.length; i++) {
      const part = copy[i];
      if (typeof part === 'object' && part !== null) copy[i] = copyInto(part, depthLeft - 1);
    }
    return Object.freeze(copy);
  }
  if (!isPlain(value)) return value;
  if (depthLeft === 0) return copyWithoutRecursion(value);
  const copy = { ...value } as Record<string, unknown>;
  // Most hold nothing but texts and numbers.
  if (hasObjects(value as Record<string, unknown>)) {
    for (const key of Object.keys(copy)) {
      const part = copy[key];
      if (typeof part === 'object' && part !== null) set(copy, key, copyInto(part, depthLeft - 1));
    }
  }
  return Object.freeze(copy);
}

/** Whether an object holds others. */
export function hasObjects(value: Readonly<Record<string, unknown>>): boolean {
  for (const key in value) if (typeof value[key] === 'object') return true;
  return false;
}

/** A key named __proto__ is data here, not a prototype. */
function set(copy: Record<string, unknown>, key: string, value: unknown): void {
  if (key === '__proto__') Object.defineProperty(copy, key, { value, enumerable: true });
  else copy[key] = value;
}

function copyWithoutRecursion(value: object): object {
  const made: object[] = [];
  const pending: object[] = [];
  const copyOf = (source: object): object => {
    const copy: object = Array.isArray(source) ? (source as unknown[]).slice() : { ...source };
    made.push(copy);
    pending.push(copy);
    return copy;
  };
  const top = copyOf(value);
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    const copy = next as Record<string, unknown>;
    for (const key of Object.keys(copy)) {
      const part = copy[key];
      if (typeof part === 'object' && part !== null && (Array.isArray(part) || isPlain(part)))
        set(copy, key, copyOf(part));
    }
  }
  for (const copy of made) Object.freeze(copy);
  return top;
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
        if (given === null) return given;
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
      set(copy as Record<string, unknown>, key, result);
    }
  }
  for (const copy of made) Object.freeze(copy);
  return top;
}

/** An event in the making as modules see it. Frozen; what stands in it is, too. */
export class DraftForModules implements ModuleEventDraft {
  readonly eventId: undefined;
  readonly roomId: string;
  readonly roomVersion: string;
  readonly type: string;
  readonly stateKey: string | undefined;
  readonly sender: string;
  readonly content: Readonly<Record<string, unknown>>;
  readonly originServerTs: number;
  readonly redacts: string | undefined;

  /** @param content frozen in every depth */
  constructor(draft: Omit<ModuleEventDraft, 'eventId'>, content: Readonly<Record<string, unknown>>) {
    this.eventId = undefined;
    this.roomId = draft.roomId;
    this.roomVersion = draft.roomVersion;
    this.type = draft.type;
    this.stateKey = draft.stateKey;
    this.sender = draft.sender;
    this.content = content;
    this.originServerTs = draft.originServerTs;
    this.redacts = draft.redacts;
    Object.freeze(this);
  }
}
Object.freeze(DraftForModules.prototype);

/**
 * What modules see of an event in the making. A transform that changes nothing gives it back as it is: the same object.
 */
export const toModuleDraft = (draft: Omit<ModuleEventDraft, 'eventId'>): ModuleEventDraft =>
  new DraftForModules(draft, frozenCopy(draft.content));

/** An event as modules see it, in the server and in a thread. Frozen by who is made of it; what stands in it is frozen. */
export abstract class SeenEvent implements ModuleEvent {
  readonly eventId: string;
  readonly roomId: string;
  readonly roomVersion: string;
  readonly type: string;
  readonly stateKey: string | undefined;
  readonly sender: string;
  readonly content: Readonly<Record<string, unknown>>;
  readonly originServerTs: number;
  readonly redacts: string | undefined;
  readonly depth: number;
  readonly prevEventIds: readonly string[];
  readonly authEventIds: readonly string[];

  /** @param content and the lists behind it: frozen in every depth */
  protected constructor(
    event: Omit<ModuleEvent, 'roomVersion' | 'content' | 'prevEventIds' | 'authEventIds' | 'pdu'>,
    roomVersion: string,
    content: Readonly<Record<string, unknown>>,
    prevEventIds: readonly string[],
    authEventIds: readonly string[],
  ) {
    this.eventId = event.eventId;
    this.roomId = event.roomId;
    this.roomVersion = roomVersion;
    this.type = event.type;
    this.stateKey = event.stateKey;
    this.sender = event.sender;
    this.content = content;
    this.originServerTs = event.originServerTs;
    this.redacts = event.redacts;
    this.depth = event.depth;
    this.prevEventIds = prevEventIds;
    this.authEventIds = authEventIds;
  }

  /** Made when a module looks at it: few do. */
  abstract get pdu(): ModuleEvent['pdu'];

  /** For `JSON.stringify`: with the PDU. */
  toJSON(): ModuleEvent {
    return { ...this, pdu: this.pdu };
  }
}
Object.freeze(SeenEvent.prototype);

/** An event in the server. The PDU is copied. */
export class EventForModules extends SeenEvent {
  readonly #event: RoomEvent;
  #pdu: ModuleEvent['pdu'] | undefined;

  constructor(event: RoomEvent) {
    const { rules, content, prevEventIds, authEventIds } = event;
    super(event, rules.version, frozenCopy(content), frozenCopy(prevEventIds), frozenCopy(authEventIds));
    this.#event = event;
    Object.freeze(this);
  }

  override get pdu(): ModuleEvent['pdu'] {
    return (this.#pdu ??= frozenCopy({ ...this.#event.pdu }));
  }

  /** The PDU as JSON, without a copy of it in between. */
  static pduText(event: EventForModules): string {
    return JSON.stringify(event.#event.pdu);
  }
}
// Whoever gets one event could otherwise change what all say.
Object.freeze(EventForModules.prototype);

/** What modules see of an event. */
export const toModuleEvent = (event: RoomEvent): ModuleEvent => new EventForModules(event);

/** Reads of a room's state at one point, as a domain offers them. */
export interface StateReader {
  get(type: string, stateKey: string): Promise<RoomEvent | undefined>;
  ofType(type: string): Promise<readonly RoomEvent[]>;
  all(): Promise<readonly RoomEvent[]>;
}

/** A state of a room as modules see it. */
export class StateForModules implements RoomStateView {
  readonly #reader: StateReader;

  constructor(reader: StateReader) {
    this.#reader = reader;
    Object.freeze(this);
  }

  async get(type: string, stateKey = ''): Promise<ModuleEvent | undefined> {
    const event = await this.#reader.get(type, stateKey);
    return event && toModuleEvent(event);
  }

  async ofType(type: string): Promise<readonly ModuleEvent[]> {
    return (await this.#reader.ofType(type)).map(toModuleEvent);
  }

  async all(): Promise<readonly ModuleEvent[]> {
    return (await this.#reader.all()).map(toModuleEvent);
  }
}
Object.freeze(StateForModules.prototype);

/** Offers a room's state to modules: nothing is read before a module asks. */
export const toStateView = (reader: StateReader): RoomStateView => new StateForModules(reader);
