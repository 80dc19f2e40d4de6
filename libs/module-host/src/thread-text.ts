import { ContextForModules } from './context.js';
import { DraftForModules, EventForModules } from './isolation.js';

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
  const event = value instanceof EventForModules ? value : undefined;
  if (!event && !(value instanceof DraftForModules) && !(value instanceof ContextForModules)) return undefined;
  const made = {
    text: JSON.stringify(event ? { ...event } : value),
    pdu: event && JSON.stringify(event.pdu),
  };
  travelling.set(value, made);
  return made;
}

const freezeDeep = <T>(value: T): T => {
  if (typeof value !== 'object' || value === null) return value;
  for (const inner of Object.values(value)) freezeDeep(inner);
  return Object.freeze(value);
};

/** An event, or a context, as modules see it. The PDU is read when a module looks at it: few do. */
export function arrived({ text, pdu }: Travelling): object {
  const event = JSON.parse(text) as Record<string, unknown>;
  if (pdu === undefined) return freezeDeep(event);
  let read: unknown;
  for (const value of Object.values(event)) freezeDeep(value);
  const get = (): unknown => (read ??= freezeDeep(JSON.parse(pdu)));
  return Object.freeze(Object.defineProperty(event, 'pdu', { get, enumerable: true }));
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
      const known = travels(value);
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
