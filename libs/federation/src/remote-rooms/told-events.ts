import { InvalidEventError, parseJson, parsePdu, type RoomEvent, type RoomVersionRules } from '@rookery/events';
import { restsUpon } from '@rookery/state-res';
import { type FileHandle, mkdtemp, open, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { WrongAnswer } from './candidates.js';
import { type ListElement, ListSplitter, type SplitLimits } from './list-splitter.js';

/** Longest text of an event, bytes: six for each that it may have. */
export const maxEventBytes = 524_288;
/** What lies so near together is read at once, bytes. */
const maxReadBytes = 4_194_304;

/** Events that are read before others get a turn, and what arrives, bytes. */
const readAtOnce = 100;
const arrivingAtOnce = 65_536;

/** Where an event lies, and which of those that are told it rests upon. */
interface Place {
  readonly at: number;
  readonly length: number;
  readonly auth: readonly string[];
}

/** Which events are kept of those that are told. */
export interface WantedEvents {
  readonly lists: ReadonlySet<string>;
  readonly limits: SplitLimits;
  /** Those that are wanted; absent: all. */
  readonly ids?: ReadonlySet<string>;
  readonly rules: RoomVersionRules;
  readonly roomId: string;
  /** Looks at each event that is wanted, once for each list in which it stands; throws what ends the reading. */
  readonly look: (event: RoomEvent, list: string) => void;
  /** Keys beside the lists whose values are wanted. */
  readonly keys?: ReadonlySet<string>;
  /** Told how many bytes have arrived; throws what ends the reading. */
  readonly arrived?: (sizeBytes: number) => void;
}

/**
 * The events of a large answer, which lie in a file that has no name any more: what is in memory of each is its id and its place.
 * Nothing but their format has been checked.
 */
export class ToldEvents {
  readonly #places = new Map<string, Place>();
  readonly #given = new Set<string>();
  /** Begun, the last first. */
  readonly #pending: { readonly id: string; readonly isBehindItsOwn: boolean }[] = [];
  #rest: Iterator<string> | undefined;
  /** Ids that many events name, each once in memory. */
  readonly #names = new Map<string, string>();
  /** The texts of what stood beside the lists and is wanted, by key. */
  fields: ReadonlyMap<string, string> = new Map();

  private constructor(private readonly file: FileHandle) {}

  /**
   * Takes an answer as it arrives.
   * @throws SyntaxError, RangeError when the answer is not what it has to be; what the stream or the file system throws
   */
  static async read(body: AsyncIterable<Buffer>, wanted: WantedEvents): Promise<ToldEvents> {
    const folder = await mkdtemp(join(tmpdir(), 'rookery-state-'));
    let file: FileHandle;
    try {
      file = await open(join(folder, 'answer'), 'wx+', 0o600);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
    const told = new ToldEvents(file);
    try {
      const splitter = new ListSplitter(wanted.lists, wanted.limits, wanted.keys);
      for await (const { piece, sizeBytes } of arriving(body)) {
        wanted.arrived?.(sizeBytes);
        // All of it: a plain write may take less.
        await file.appendFile(piece);
        for (const element of splitter.push(piece)) told.#note(element, wanted);
      }
      splitter.end();
      told.fields = splitter.kept;
      return told;
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  #note({ list, bytes, at }: ListElement, { ids, rules, roomId, look }: WantedEvents): void {
    let event: RoomEvent;
    try {
      event = parsePdu(parseJson(bytes.toString('utf8')), rules, { roomId });
    } catch (error) {
      if (!(error instanceof InvalidEventError)) throw error;
      // One that is no event is left out; what is no JSON spoils the whole.
      if (error.kind === 'json') JSON.parse(bytes.toString('utf8'));
      return;
    }
    if (ids && !ids.has(event.eventId)) return;
    look(event, list);
    if (this.#places.has(event.eventId)) return;
    const auth = restsUpon(event).filter((id) => ids?.has(id) ?? true);
    this.#places.set(event.eventId, { at, length: bytes.length, auth: auth.map((id) => this.#nameOf(id)) });
  }

  #nameOf(id: string): string {
    const name = this.#names.get(id);
    if (name === undefined) this.#names.set(id, id);
    return name ?? id;
  }

  /** All that are told. */
  get ids(): Iterable<string> {
    return this.#places.keys();
  }

  /** Those of some events that are told, and of all upon which these rest. */
  withChains(eventIds: Iterable<string>): Set<string> {
    const found = new Set<string>();
    const pending = [...eventIds];
    for (let id = pending.pop(); id !== undefined; id = pending.pop()) {
      const place = this.#places.get(id);
      if (!place || found.has(id)) continue;
      found.add(id);
      pending.push(...place.auth);
    }
    return found;
  }

  /** The texts of events that are told, parsed, in the order of their ids. */
  async read(eventIds: Iterable<string>): Promise<unknown[]> {
    const values: unknown[] = [];
    const places = [...eventIds].flatMap((id) => this.#places.get(id) ?? []);
    for (let start = 0; start < places.length; start += readAtOnce)
      values.push(...(await this.#values(places.slice(start, start + readAtOnce))));
    return values;
  }

  /** The next events, each behind those of its auth events that are told; empty once all were given. */
  async next(limit: number): Promise<unknown[]> {
    const ids: string[] = [];
    for (let id = this.#nextId(); id !== undefined; id = this.#nextId()) if (ids.push(id) >= limit) break;
    return this.#values(ids.map((id) => this.#places.get(id)!));
  }

  #nextId(): string | undefined {
    this.#rest ??= this.#places.keys();
    for (;;) {
      const last = this.#pending.pop();
      if (last?.isBehindItsOwn) return last.id;
      const next = last?.id ?? this.#rest.next().value;
      if (next === undefined) return undefined;
      const place = this.#places.get(next);
      if (!place || this.#given.has(next)) continue;
      this.#given.add(next);
      this.#pending.push({ id: next, isBehindItsOwn: true });
      for (const id of place.auth) if (!this.#given.has(id)) this.#pending.push({ id, isBehindItsOwn: false });
    }
  }

  async #values(places: readonly Place[]): Promise<unknown[]> {
    if (places.length === 0) return [];
    const start = Math.min(...places.map(({ at }) => at));
    const end = Math.max(...places.map(({ at, length }) => at + length));
    const near = end - start <= maxReadBytes ? await this.#bytes(start, end - start) : undefined;
    const values: unknown[] = [];
    for (const { at, length } of places) {
      const bytes = near?.subarray(at - start, at - start + length) ?? (await this.#bytes(at, length));
      values.push(parseJson(bytes.toString('utf8')));
    }
    return values;
  }

  async #bytes(at: number, length: number): Promise<Buffer> {
    const bytes = Buffer.allocUnsafe(length);
    let read = 0;
    while (read < length) {
      const { bytesRead } = await this.file.read(bytes, read, length - read, at + read);
      if (bytesRead === 0) throw new Error('The file ends too early');
      read += bytesRead;
    }
    return bytes;
  }

  /** Gives the file back. */
  close(): Promise<void> {
    return this.file.close();
  }
}

/** Pieces as they arrive, and how much that is with each: of many that are there already, few are taken in a turn of the event loop. */
export async function* arriving(
  body: AsyncIterable<Buffer>,
): AsyncGenerator<{ readonly piece: Buffer; readonly sizeBytes: number }, void> {
  let [sizeBytes, inTurn] = [0, 0];
  for await (const piece of body) {
    sizeBytes += piece.length;
    yield { piece, sizeBytes };
    if ((inTurn += piece.length) < arrivingAtOnce) continue;
    inTurn = 0;
    await nextTurn();
  }
}

/** A room has one create event: that upon which rests what is known of it. @throws WrongAnswer for another one */
export function lookForBeginning(server: string, known: RoomEvent, { type, eventId }: RoomEvent): void {
  if (type === 'm.room.create' && !restsUpon(known).includes(eventId))
    throw new WrongAnswer(server, 'two create events');
}

/** What reading an answer threw, as the fault of who gave it where it is theirs. */
export const faultOf = (server: string, error: unknown): unknown =>
  error instanceof SyntaxError || error instanceof RangeError ? new WrongAnswer(server, error.message) : error;
