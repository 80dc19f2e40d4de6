import type { JsonObject } from '@rookery/matrix-types';

/**
 * The rooms of an answer as text, room by room: what it was written from need not be kept until the last room is there. Goes
 * out with {@link answerText}; to anybody else who writes it, it is the object that it stands for.
 */
export class WrittenRooms {
  readonly #sections = new Map<string, string[]>();

  get isEmpty(): boolean {
    return this.#sections.size === 0;
  }

  add(section: string, roomId: string, room: JsonObject): void {
    const text = `${JSON.stringify(roomId)}:${JSON.stringify(room)}`;
    const list = this.#sections.get(section);
    if (list === undefined) this.#sections.set(section, [text]);
    else list.push(',', text);
  }

  /** The text of the whole, in pieces. */
  pieces(): string[] {
    const pieces: string[] = [];
    for (const [section, rooms] of this.#sections) {
      pieces.push(pieces.length === 0 ? '{' : '},', `${JSON.stringify(section)}:{`);
      for (const piece of rooms) pieces.push(piece);
    }
    pieces.push(pieces.length === 0 ? '{}' : '}}');
    return pieces;
  }

  toJSON(): unknown {
    return JSON.parse(this.pieces().join(''));
  }
}

/** The text of an answer; `undefined` when nothing of it is written yet. */
export function answerText(answer: JsonObject): string | undefined {
  const { rooms, ...rest } = answer;
  if (!(rooms instanceof WrittenRooms)) return undefined;
  const text = JSON.stringify(rest);
  const pieces = rooms.pieces();
  pieces.unshift(text.slice(0, -1), text === '{}' ? '"rooms":' : ',"rooms":');
  pieces.push('}');
  // Joined once: the answer of an account with many rooms is large.
  return pieces.join('');
}
