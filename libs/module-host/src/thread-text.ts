import type { CallbackContext, ModuleEvent, ModuleEventDraft } from '@rookery/module-api';
import { ContextForModules } from './context.js';
import { DraftForModules, EventForModules, hasObjects, SeenEvent } from './isolation.js';

/** An event, an event in the making or a context as it travels to a thread: as JSON, and of an event its PDU, too. */
export interface Travelling {
  readonly text: string;
  readonly pdu: string | undefined;
}

/**
 * What a list in the JSON is, first in it. Lists of fields, not objects: reading them is half of what a judge in a thread costs, and
 * each name of an object is looked up by the engine, which lists do without.
 */
const kind = { nothing: 0, event: 1, draft: 2, context: 3 } as const;

/** A field as JSON has it, which knows no `undefined`. No field is `null`. */
type Field = string | number | boolean | null | readonly string[] | Readonly<Record<string, unknown>>;
type Fields = readonly [what: number, ...Field[]];
type Content = Readonly<Record<string, unknown>>;

/** Frozen values as they travel: one event is given to many modules. */
const travelling = new WeakMap<object, Travelling>();

/** How an event or a context travels; `undefined` for anything else. */
export function travels(value: object): Travelling | undefined {
  const known = travelling.get(value);
  if (known) return known;
  const fields = fieldsOf(value);
  if (!fields) return undefined;
  const made = { text: JSON.stringify(fields), pdu: pduOf(value) };
  travelling.set(value, made);
  return made;
}

function fieldsOf(value: object): Fields | undefined {
  if (value instanceof SeenEvent) {
    return [
      kind.event,
      value.eventId,
      value.roomId,
      value.roomVersion,
      value.type,
      value.stateKey ?? null,
      value.sender,
      value.content,
      hasObjects(value.content),
      value.originServerTs,
      value.redacts ?? null,
      value.depth,
      value.prevEventIds,
      value.authEventIds,
    ];
  }
  if (value instanceof DraftForModules) {
    return [
      kind.draft,
      value.roomId,
      value.roomVersion,
      value.type,
      value.stateKey ?? null,
      value.sender,
      value.content,
      hasObjects(value.content),
      value.originServerTs,
      value.redacts ?? null,
    ];
  }
  if (value instanceof ContextForModules) {
    return [
      kind.context,
      value.source,
      value.requestId ?? null,
      value.userId ?? null,
      value.deviceId ?? null,
      value.appserviceId ?? null,
      value.ip ?? null,
      value.userAgent ?? null,
      value.origin ?? null,
      value.isAdmin,
      value.duringRoomCreation,
    ];
  }
  return undefined;
}

const pduOf = (value: object): string | undefined =>
  value instanceof EventForModules
    ? EventForModules.pduText(value)
    : value instanceof ArrivedEvent
      ? ArrivedEvent.pduText(value)
      : undefined;

// Written for the engine: each thread compiles it for itself, and what freezes what it goes through is compiled again and again.
function freezeDeep<T>(value: T): T {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) freezeDeep(value[i] as unknown);
  } else if (hasObjects(value as Record<string, unknown>)) {
    for (const inner of Object.values(value)) freezeDeep(inner);
  }
  return Object.freeze(value);
}

/** An event in a thread, the same to look at as one in the server. The PDU is read from its text. */
class ArrivedEvent extends SeenEvent {
  /** Its text, until a module looks at it. One field for both: each private one takes as long to make as ten others. */
  #pdu: string | ModuleEvent['pdu'];

  constructor(fields: Fields, pdu: string) {
    const content = frozenContent(fields[7] as Content, fields[8] as boolean);
    const prevEventIds = Object.freeze(fields[12] as readonly string[]);
    const authEventIds = Object.freeze(fields[13] as readonly string[]);
    const event = {
      eventId: fields[1] as string,
      roomId: fields[2] as string,
      type: fields[4] as string,
      stateKey: (fields[5] as string | null) ?? undefined,
      sender: fields[6] as string,
      originServerTs: fields[9] as number,
      redacts: (fields[10] as string | null) ?? undefined,
      depth: fields[11] as number,
    };
    super(event, fields[3] as string, content, prevEventIds, authEventIds);
    this.#pdu = pdu;
    Object.freeze(this);
  }

  override get pdu(): ModuleEvent['pdu'] {
    if (typeof this.#pdu === 'string') this.#pdu = freezeDeep(JSON.parse(this.#pdu) as ModuleEvent['pdu']);
    return this.#pdu;
  }

  static pduText(event: ArrivedEvent): string {
    return typeof event.#pdu === 'string' ? event.#pdu : JSON.stringify(event.#pdu);
  }
}
// As of those in the server.
Object.freeze(ArrivedEvent.prototype);

/** What was parsed, in which nobody looks for objects where there are none. */
const frozenContent = (content: Content, isDeep: boolean): Content =>
  isDeep ? freezeDeep(content) : Object.freeze(content);

function valueOf(fields: Fields, pdu: string | undefined): object | undefined {
  switch (fields[0]) {
    case kind.event:
      return new ArrivedEvent(fields, pdu ?? '{}');
    case kind.draft: {
      const draft: Omit<ModuleEventDraft, 'eventId' | 'content'> = {
        roomId: fields[1] as string,
        roomVersion: fields[2] as string,
        type: fields[3] as string,
        stateKey: (fields[4] as string | null) ?? undefined,
        sender: fields[5] as string,
        originServerTs: fields[8] as number,
        redacts: (fields[9] as string | null) ?? undefined,
      };
      const content = frozenContent(fields[6] as Content, fields[7] as boolean);
      return new DraftForModules({ ...draft, content }, content);
    }
    case kind.context:
      return Object.freeze({
        source: fields[1] as CallbackContext['source'],
        requestId: (fields[2] as string | null) ?? undefined,
        userId: (fields[3] as string | null) ?? undefined,
        deviceId: (fields[4] as string | null) ?? undefined,
        appserviceId: (fields[5] as string | null) ?? undefined,
        ip: (fields[6] as string | null) ?? undefined,
        userAgent: (fields[7] as string | null) ?? undefined,
        origin: (fields[8] as string | null) ?? undefined,
        isAdmin: fields[9] as boolean,
        duringRoomCreation: fields[10] as boolean,
      } satisfies CallbackContext);
    default:
      return undefined;
  }
}

/** An event, or a context, as modules see it. */
export const arrived = ({ text, pdu }: Travelling): object | undefined => valueOf(JSON.parse(text) as Fields, pdu);

const nothing: Fields = [kind.nothing];

/** Arguments of a call as they travel. */
export interface WrittenArguments {
  /** All of them. */
  readonly json: string;
  /** The PDU of each event, a line each. */
  readonly pdus: string;
}

/** Arguments of a call as text; `undefined` when they hold more than events, contexts and plain values. */
export function writeArguments(given: readonly unknown[]): WrittenArguments | undefined {
  const list: unknown[] = [];
  let pdus = '';
  for (const value of given) {
    if (value === undefined) list.push(nothing);
    else if (typeof value === 'object' && value !== null) {
      const fields = fieldsOf(value);
      if (!fields) return undefined;
      list.push(fields);
      const pdu = pduOf(value);
      if (pdu !== undefined) pdus = pdus === '' ? pdu : `${pdus}\n${pdu}`;
    } else if (typeof value === 'function' || typeof value === 'symbol' || typeof value === 'bigint') return undefined;
    // JSON knows no such numbers.
    else if (typeof value === 'number' && !Number.isFinite(value)) return undefined;
    else list.push(value);
  }
  return { json: JSON.stringify(list), pdus };
}

/** What {@link writeArguments} was given, on the other side. */
export function readArguments({ json, pdus }: WrittenArguments): unknown[] {
  const given = JSON.parse(json) as unknown[];
  let from = 0;
  for (let i = 0; i < given.length; i++) {
    const fields = given[i];
    if (typeof fields !== 'object' || fields === null) continue;
    let pdu: string | undefined;
    if ((fields as Fields)[0] === kind.event) {
      const end = pdus.indexOf('\n', from);
      pdu = end === -1 ? pdus.slice(from) : pdus.slice(from, end);
      from = end + 1;
    }
    given[i] = valueOf(fields as Fields, pdu);
  }
  return given;
}
