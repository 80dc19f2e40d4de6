import { jsonParts, WrittenList } from '@rookery/http';
import type { JsonObject } from '@rookery/matrix-types';

/**
 * Events of a room, and pieces of account data, which are larger, that are written in one go whatever they hold: measuring them would
 * cost a third of writing them.
 */
const [fewEvents, fewPieces] = [64, 4];

const colon = Buffer.from(':');
const comma = Buffer.from(',');
const open = Buffer.from('{');
const close = Buffer.from('}');
const openEvents = Buffer.from('{"events":');

/**
 * The rooms of an answer as they go out, bytes of JSON, written some rooms at a time: neither what they were written from nor
 * their text need be kept until the last room is there. Goes out with {@link answerBytes}; to anybody else who writes it, it
 * is the object that it stands for.
 */
export class WrittenRooms {
  readonly #sections = new Map<string, Uint8Array[]>();

  /** Rooms by section. */
  static async of(sections: Readonly<Record<string, Readonly<Record<string, JsonObject>>>>): Promise<WrittenRooms> {
    const written = new WrittenRooms();
    for (const [section, rooms] of Object.entries(sections)) await written.add(section, rooms);
    return written;
  }

  get isEmpty(): boolean {
    return this.#sections.size === 0;
  }

  /** Adds rooms to a section. @param rooms by id, at least one */
  async add(section: string, rooms: Readonly<Record<string, JsonObject>>): Promise<void> {
    let parts = this.#sections.get(section);
    if (parts === undefined) this.#sections.set(section, (parts = []));
    const push = (...bytes: Uint8Array[]): void => {
      if (parts.length > 0) parts.push(comma);
      parts.push(...bytes);
    };
    let small: Record<string, JsonObject> = {};
    const writeSmall = (): void => {
      const text = JSON.stringify(small);
      if (text !== '{}') push(Buffer.from(text).subarray(1, -1));
      small = {};
    };
    for (const [roomId, room] of Object.entries(rooms)) {
      if (hasFewEvents(room)) {
        small[roomId] = room;
        continue;
      }
      writeSmall();
      const written = await jsonParts(room);
      const bytes = typeof written === 'string' ? [Buffer.from(written)] : written;
      push(Buffer.from(`${JSON.stringify(roomId)}:`), ...bytes);
    }
    writeSmall();
  }

  /** The bytes of the whole, in parts. */
  parts(): Uint8Array[] {
    const parts: Uint8Array[] = [open];
    for (const [section, rooms] of this.#sections) {
      if (parts.length > 1) parts.push(comma);
      parts.push(Buffer.from(JSON.stringify(section)), colon, open, ...rooms, close);
    }
    parts.push(close);
    return parts;
  }

  toJSON(): unknown {
    return JSON.parse(Buffer.concat(this.parts()).toString());
  }
}

/** The bytes of an answer, in parts; `undefined` when nothing of it is written yet. */
export function answerBytes(answer: JsonObject): Uint8Array[] | undefined {
  const { rooms, account_data: accountData, ...rest } = answer;
  const written: [name: string, parts: readonly Uint8Array[]][] = [];
  const events = (accountData as JsonObject | undefined)?.['events'];
  if (events instanceof WrittenList) written.push(['account_data', [openEvents, ...events.parts(), close]]);
  else if (accountData !== undefined) rest['account_data'] = accountData;
  if (rooms instanceof WrittenRooms) written.push(['rooms', rooms.parts()]);
  else if (rooms !== undefined) rest['rooms'] = rooms;
  if (written.length === 0) return undefined;
  const text = JSON.stringify(rest);
  const parts: Uint8Array[] = [Buffer.from(text.slice(0, -1))];
  for (const [index, [name, bytes]] of written.entries())
    parts.push(Buffer.from(`${text === '{}' && index === 0 ? '' : ','}"${name}":`), ...bytes);
  return [...parts, close];
}

/** Whether account data of one of the rooms are text already, which rooms are then to be as well. */
export function holdsText(rooms: Readonly<Record<string, Readonly<Record<string, JsonObject>>>>): boolean {
  for (const section of Object.values(rooms))
    for (const { account_data: part } of Object.values(section))
      if ((part as JsonObject | undefined)?.['events'] instanceof WrittenList) return true;
  return false;
}

function hasFewEvents(room: JsonObject): boolean {
  let count = 0;
  for (const [name, part] of Object.entries(room)) {
    const events = (part as JsonObject | undefined)?.['events'];
    if (events instanceof WrittenList) return false;
    if (!Array.isArray(events)) continue;
    if (name === 'account_data' && events.length > fewPieces) return false;
    count += events.length;
  }
  return count <= fewEvents;
}
