import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { localpartOf } from '@rookery/matrix-types';
import { holdsWords, textOfOldMentions } from '@rookery/push-rules';
import { Cache, Config, type Soon } from '@rookery/platform';
import type { EventBatch } from '@rookery/rooms';
import { PushRulesService } from '../rules/push-rules.service.js';
import { memberNames } from './names-in-text.query.js';

/** So many names are kept, of all rooms together. */
const maxNames = 500_000;
/** In a room with more members of this server nobody is looked for by name. */
const maxMembers = 50_000;
/** So many names are compared with one text, and so many users found in it; a name that more users share means nobody. */
const maxCompared = 2_000;
const maxFound = 100;

/**
 * Who is mentioned by a name in a text alone, as clients and bridges write it that know no `m.mentions`. The names of a room's
 * members are read once and kept by a word of each, so that a message costs what its text costs, whoever is in the room.
 */
@Injectable()
export class NamesInText {
  readonly #rooms: Cache<string, NameIndex>;

  constructor(
    private readonly database: Database,
    private readonly rules: PushRulesService,
    config: Config,
  ) {
    this.#rooms = new Cache(config, 'names_in_text', {
      ...{ invalidation: 'stream events', elsewhere: 'not kept', max: 2 * maxNames },
      sizeOf: ({ size }) => 1 + size,
    });
  }

  /** The names of a room's members after a batch; undefined where nothing in the batch is searched for them. */
  namesFor(batch: EventBatch): Soon<NameIndex | undefined> {
    if (!this.rules.features.legacyMentions) return undefined;
    const known = this.#follow(batch);
    const { events, backfilled, room } = batch;
    const count = room.localMembers.size;
    const isSearched = events.some(({ event }) => textOfOldMentions(event.content) !== undefined);
    if (backfilled || !isSearched || count === 0 || count > maxMembers) return undefined;
    if (count === 1 && events.every(({ event }) => room.localMembers.has(event.sender))) return undefined;
    return known ?? this.#load(batch);
  }

  forget(roomId: string): void {
    this.#rooms.delete(roomId);
  }

  /**
   * Takes over what the batch changes. Names that are none any more stay for a while: whoever is found is looked at with the
   * name that the room's state gives.
   */
  #follow(batch: EventBatch): NameIndex | undefined {
    const { roomId, moves } = batch;
    const index = this.#rooms.peek(roomId);
    // What is being read is without it.
    if (index === undefined && moves.length > 0) this.#rooms.delete(roomId);
    if (index === undefined || moves.length === 0) return index && this.#rooms.get(roomId);
    const isKnown = addMoved(index, batch) && index.size <= 4 * batch.room.localMembers.size + 100;
    if (!isKnown) {
      this.#rooms.delete(roomId);
      return undefined;
    }
    this.#rooms.set(roomId, index);
    return index;
  }

  async #load(batch: EventBatch): Promise<NameIndex> {
    const { roomId, room } = batch;
    const reading = this.#rooms.begin();
    try {
      const names = await memberNames(this.database, roomId, [...room.localMembers]);
      const index = new NameIndex();
      for (const userId of room.localMembers) index.add(userId, localpartOf(userId));
      for (const [userId, name] of names) index.add(userId, name);
      // What the batch itself says is not in the tables yet. Where it cannot be told, the next batch reads again.
      if (addMoved(index, batch)) reading.keep(roomId, index);
      return index;
    } finally {
      reading.end();
    }
  }
}

/** @returns whether all changes are known */
function addMoved(index: NameIndex, { moves, events, room }: EventBatch): boolean {
  let isKnown = true;
  for (const { userId, eventId } of moves) {
    if (!room.localMembers.has(userId)) continue;
    const member = events.find(({ event }) => event.eventId === eventId)?.event;
    if (member === undefined) isKnown = false;
    index.add(userId, localpartOf(userId));
    const name = member?.content['displayname'];
    if (typeof name === 'string') index.add(userId, name);
  }
  return isKnown;
}

/** Names by a word that a text has to have for the name to be in it. */
export class NameIndex {
  readonly #words = new Map<string, Map<string, Set<string>>>();
  #size = 0;
  /** Some names have no word of Latin letters; they are found by how they begin. */
  #hasOthers = false;

  /** How many names there are, each counted for each of its users. */
  get size(): number {
    return this.#size;
  }

  add(userId: string, writtenName: string): void {
    const name = writtenName.toLowerCase();
    const key = keyOf(name);
    if (key === undefined) return;
    this.#hasOthers ||= !isWord(key);
    let names = this.#words.get(key);
    if (names === undefined) this.#words.set(key, (names = new Map<string, Set<string>>()));
    let users = names.get(name);
    if (users === undefined) names.set(name, (users = new Set()));
    if (!users.has(userId)) this.#size++;
    users.add(userId);
  }

  /** Users whose names, as far as known here, are in a text. */
  usersIn(writtenText: string): Set<string> {
    const text = writtenText.toLowerCase();
    const found = new Set<string>();
    let compared = 0;
    for (const key of this.#keysIn(text))
      for (const [name, users] of this.#words.get(key) ?? []) {
        if (++compared > maxCompared) return found;
        if (users.size > maxFound || !holdsWords(text, name)) continue;
        for (const userId of users) if (found.add(userId).size >= maxFound) return found;
      }
    return found;
  }

  #keysIn(text: string): Set<string> {
    const keys = new Set<string>(text.match(words));
    if (this.#hasOthers)
      for (let at = 0; at < text.length; at++) keys.add(text.slice(at, at + 1)).add(text.slice(at, at + 2));
    return keys;
  }
}

const words = /[a-z0-9_]+/g;
const isWord = (key: string): boolean => /^[a-z0-9_]/.test(key);

/**
 * What a text that holds a name has: a name begins and ends at the boundaries of words, so its words are words of the text.
 * The longest tells most. A name without any is in the text as it is, with its first two characters.
 */
function keyOf(name: string): string | undefined {
  if (name === '') return undefined;
  const [first = '', ...others] = name.match(words) ?? [];
  return others.reduce((longest, word) => (word.length > longest.length ? word : longest), first) || name.slice(0, 2);
}

/** For {@link NamesInText.namesFor} and an event of its batch. */
export function usersNamedIn(
  names: NameIndex | undefined,
  content: Readonly<Record<string, unknown>>,
): ReadonlySet<string> {
  const text = names && textOfOldMentions(content);
  return names === undefined || text === undefined ? none : names.usersIn(text);
}

const none: ReadonlySet<string> = new Set();
