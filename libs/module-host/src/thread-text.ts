import type { ModuleEvent } from '@rookery/module-api';
import { ContextForModules } from './context.js';
import { DraftForModules, EventForModules, SeenEvent } from './isolation.js';

/** An event, an event in the making or a context as it travels to a thread: as JSON, and of an event its PDU, too. */
export interface Travelling {
  readonly text: string;
  readonly pdu: string | undefined;
}

/** Frozen values as they travel: one event is given to many modules. */
const travelling = new WeakMap<object, Travelling>();

/** How an event or a context travels; `undefined` for anything else. */
export function travels(value: object): Travelling | undefined {
  const known = travelling.get(value);
  if (known) return known;
  const made = written(value);
  if (made) travelling.set(value, made);
  return made;
}

function written(value: object): Travelling | undefined {
  if (value instanceof EventForModules) {
    return { text: JSON.stringify({ ...value }), pdu: EventForModules.pduText(value) };
  }
  if (value instanceof ArrivedEvent) return { text: JSON.stringify({ ...value }), pdu: ArrivedEvent.pduText(value) };
  const isKnown = value instanceof ContextForModules || value instanceof DraftForModules;
  return isKnown ? { text: JSON.stringify(value), pdu: undefined } : undefined;
}

function hasObjects(value: Readonly<Record<string, unknown>>): boolean {
  for (const key in value) if (typeof value[key] === 'object') return true;
  return false;
}

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
  readonly #text: string;
  #pdu: ModuleEvent['pdu'] | undefined;

  constructor(event: ModuleEvent, pdu: string) {
    super(event, event.roomVersion, freezeDeep(event.content));
    this.#text = pdu;
    Object.freeze(this);
  }

  override get pdu(): ModuleEvent['pdu'] {
    return (this.#pdu ??= freezeDeep(JSON.parse(this.#text) as ModuleEvent['pdu']));
  }

  static pduText(event: ArrivedEvent): string {
    return event.#text;
  }
}
// As of those in the server.
Object.freeze(ArrivedEvent.prototype);

/** An event, or a context, as modules see it. */
export function arrived({ text, pdu }: Travelling): object {
  const value = JSON.parse(text) as object;
  return pdu === undefined ? freezeDeep(value) : new ArrivedEvent(value as ModuleEvent, pdu);
}

/** What a line of {@link writeArguments} holds, by its first character. */
const line = { nothing: 'u', plain: 'v', object: 'o', event: 'e' } as const;

/** Arguments of a call as lines of text; `undefined` when they hold more than events, contexts and plain values. */
export function writeArguments(given: readonly unknown[]): string | undefined {
  let lines = '';
  for (const value of given) {
    if (lines !== '') lines += '\n';
    if (value === undefined) lines += line.nothing;
    else if (typeof value === 'object' && value !== null) {
      const known = written(value);
      if (!known) return undefined;
      lines += known.pdu === undefined ? line.object + known.text : `${line.event}${known.text}\n${known.pdu}`;
    } else if (typeof value === 'function' || typeof value === 'symbol' || typeof value === 'bigint') return undefined;
    // JSON knows no such numbers.
    else if (typeof value === 'number' && !Number.isFinite(value)) return undefined;
    else lines += line.plain + JSON.stringify(value);
  }
  return lines;
}

/** What {@link writeArguments} was given, on the other side. */
export function readArguments(text: string): unknown[] {
  const lines = text === '' ? [] : text.split('\n');
  const given: unknown[] = [];
  for (let i = 0; i < lines.length; i++) {
    const [kind, rest] = [lines[i]![0], lines[i]!.slice(1)];
    if (kind === line.nothing) given.push(undefined);
    else if (kind === line.plain) given.push(JSON.parse(rest));
    else given.push(arrived({ text: rest, pdu: kind === line.event ? lines[++i] : undefined }));
  }
  return given;
}
