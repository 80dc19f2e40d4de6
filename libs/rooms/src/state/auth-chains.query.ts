import type { Db, Tx } from '@rookery/database';
import type { RoomEvent } from '@rookery/events';
import type { ChainMemory, ChainPosition } from './chain-memory.js';

/** As much of a state event as the chain cover looks at. */
export type ChainedEvent = Pick<RoomEvent, 'eventId' | 'type' | 'stateKey' | 'authEventIds'>;

interface PositionRow {
  readonly event_id: string;
  readonly chain_id: number;
  readonly sequence_number: number;
  readonly generation: number | null;
}

/** Places of events in the chain cover; events without one are absent. */
export async function selectChainPositions(db: Db, eventIds: readonly string[]): Promise<Map<string, ChainPosition>> {
  if (eventIds.length === 0) return new Map();
  const rows = await db.query<PositionRow>(
    `SELECT event_id, chain_id, sequence_number, generation FROM event_auth_chains WHERE ${db.dialect.anyOf('event_id')}`,
    [eventIds],
  );
  return new Map(
    rows.map((row) => [
      row.event_id,
      { chain: row.chain_id, sequence: row.sequence_number, generation: row.generation ?? undefined },
    ]),
  );
}

/** Places in the chain cover that are not written yet. */
export interface ChainPlan {
  readonly positions: readonly (readonly [
    eventId: string,
    chain: number,
    sequence: number,
    generation: number | null,
  ])[];
  readonly links: readonly (readonly [chain: number, sequence: number, target: number, targetSequence: number])[];
  /** Those that could not be placed, for want of an auth event's place: the cover is incomplete. */
  readonly unplaced: ReadonlySet<string>;
}

/**
 * Gives state events their places in the chain cover of auth chains and writes them, as {@link planAuthChains} says.
 * @returns those that could not be placed
 */
export async function writeAuthChains(
  tx: Tx,
  events: readonly ChainedEvent[],
  chainIds: readonly number[],
  memory?: ChainMemory,
): Promise<ReadonlySet<string>> {
  const plan = await planAuthChains(tx, events, chainIds, memory);
  await insertAuthChains(tx, [plan]);
  return plan.unplaced;
}

/** Writes places that were planned in this transaction. */
export async function insertAuthChains(tx: Tx, plans: readonly ChainPlan[]): Promise<void> {
  await tx.insertMany(
    'event_auth_chains',
    ['event_id', 'chain_id', 'sequence_number', 'generation'],
    plans.flatMap((plan) => plan.positions),
  );
  await tx.insertMany(
    'event_auth_chain_links',
    ['origin_chain_id', 'origin_sequence_number', 'target_chain_id', 'target_sequence_number'],
    plans.flatMap((plan) => plan.links),
  );
}

/** Those of some events that have a place in the chain cover. */
function placesOf(
  eventIds: readonly string[],
  positions: ReadonlyMap<string, ChainPosition>,
): { readonly position: ChainPosition; readonly eventId: string }[] {
  return eventIds.flatMap((eventId) => {
    const position = positions.get(eventId);
    return position ? [{ position, eventId }] : [];
  });
}

/**
 * Finds the places of state events in the chain cover of auth chains. An event goes on the chain of one of its auth
 * events when that is the last of its chain, if possible the one it replaces; else it starts a chain. Links are written
 * only where the chain does not reach the target already.
 * @param events each behind its auth events
 * @param chainIds one fresh id per event; not all need be used
 * @param memory of the room, where its writer keeps one; it learns what was read and written, once that is durable
 */
export async function planAuthChains(
  tx: Tx,
  events: readonly ChainedEvent[],
  chainIds: readonly number[],
  memory?: ChainMemory,
): Promise<ChainPlan> {
  const own = new Set(events.map((event) => event.eventId));
  const named = new Set(events.flatMap((event) => event.authEventIds).filter((eventId) => !own.has(eventId)));
  const positions = await positionsOf(tx, named, memory);
  const tips = new Map<number, number>();
  const links = new Map<number, Map<number, number>>();
  await readEnds(tx, new Set([...positions.values()].map((position) => position.chain)), tips, links, memory);
  const newPositions: [string, number, number, number | null][] = [];
  const newLinks: [number, number, number, number][] = [];
  const replaced = new Map<string, string>();
  const unplaced = new Set<string>();
  for (const [index, event] of events.entries()) {
    const targets = placesOf(event.authEventIds, positions);
    if (targets.length < event.authEventIds.length) {
      unplaced.add(event.eventId);
      continue;
    }
    const free = targets.filter(({ position }) => tips.get(position.chain) === position.sequence);
    const parent = free.find(({ eventId }) => replaced.get(eventId) === keyOf(event)) ?? free.at(-1);
    const chain = parent?.position.chain ?? chainIds[index]!;
    const sequence = (parent?.position.sequence ?? 0) + 1;
    const generation = generationAfter(targets.map(({ position }) => position.generation));
    positions.set(event.eventId, { chain, sequence, generation });
    tips.set(chain, sequence);
    replaced.set(event.eventId, keyOf(event));
    newPositions.push([event.eventId, chain, sequence, generation ?? null]);
    const reach = linksOf(links, chain);
    for (const { position } of targets) {
      if (position.chain === chain || (reach.get(position.chain) ?? 0) >= position.sequence) continue;
      reach.set(position.chain, position.sequence);
      newLinks.push([chain, sequence, position.chain, position.sequence]);
    }
  }
  if (memory) {
    tx.afterCommit(() =>
      memory.learn(
        positions,
        [...tips].map(([chain, tip]) => [chain, { tip, reach: links.get(chain) ?? new Map() }]),
      ),
    );
  }
  return { positions: newPositions, links: newLinks, unplaced };
}

async function positionsOf(
  tx: Tx,
  eventIds: ReadonlySet<string>,
  memory: ChainMemory | undefined,
): Promise<Map<string, ChainPosition>> {
  const positions = new Map<string, ChainPosition>();
  const unknown: string[] = [];
  for (const eventId of eventIds) {
    const position = memory?.position(eventId);
    if (position) positions.set(eventId, position);
    else unknown.push(eventId);
  }
  for (const [eventId, position] of await selectChainPositions(tx, unknown)) positions.set(eventId, position);
  return positions;
}

/** Reads where chains end and what their links reach. */
async function readEnds(
  tx: Tx,
  chains: ReadonlySet<number>,
  tips: Map<number, number>,
  links: Map<number, Map<number, number>>,
  memory: ChainMemory | undefined,
): Promise<void> {
  const unknown: number[] = [];
  for (const chain of chains) {
    const end = memory?.end(chain);
    if (!end) {
      unknown.push(chain);
      continue;
    }
    tips.set(chain, end.tip);
    links.set(chain, new Map(end.reach));
  }
  if (unknown.length === 0) return;
  const tipRows = await tx.query<{ chain_id: number; tip: number }>(
    `SELECT chain_id, MAX(sequence_number) AS tip FROM event_auth_chains WHERE ${tx.dialect.anyOf('chain_id')}
     GROUP BY chain_id`,
    [unknown],
  );
  for (const row of tipRows) tips.set(row.chain_id, row.tip);
  const linkRows = await tx.query<{ origin: number; target: number; reach: number }>(
    `SELECT origin_chain_id AS origin, target_chain_id AS target, MAX(target_sequence_number) AS reach
     FROM event_auth_chain_links WHERE ${tx.dialect.anyOf('origin_chain_id')} GROUP BY origin_chain_id, target_chain_id`,
    [unknown],
  );
  for (const row of linkRows) linksOf(links, row.origin).set(row.target, row.reach);
}

/** The generation of an event whose auth events have these. */
export function generationAfter(generations: readonly (number | undefined)[]): number | undefined {
  let generation = 0;
  for (const before of generations) {
    if (before === undefined) return undefined;
    generation = Math.max(generation, before + 1);
  }
  return generation;
}

const keyOf = (event: ChainedEvent): string => `${event.type}\n${event.stateKey}`;

function linksOf(links: Map<number, Map<number, number>>, chain: number): Map<number, number> {
  let reach = links.get(chain);
  if (!reach) links.set(chain, (reach = new Map()));
  return reach;
}

/** What state sets agree on, of which no more is looked at than has to be. */
export interface CommonEvents {
  /** Those whose chains may well lead to some events; to none: those through which most chains lead. */
  likely(eventIds: readonly string[]): Promise<readonly string[]>;
  /** Ids of all of them. */
  all(): Iterable<string>;
}

/** Events whose places are looked up before others get a turn. */
const idsPerTurn = 1_000;

/**
 * The auth difference by the chain cover: per chain, how far each state set reaches; what lies between the least and the
 * greatest reach is in the chains of some sets only. What the sets agree on, which can be as large as the room, is looked into only
 * as long as its chains can decide about an event.
 * @param sets per state set, ids of its events that are not in every set
 * @param common events in every state set; they reach the same in all
 * @param turn lets others run, after so many more events were looked at
 * @returns ids, with or without those of `sets` themselves; `undefined` when an event has no place in the cover
 */
export async function authDifference(
  db: Db,
  sets: readonly ReadonlySet<string>[],
  common: CommonEvents,
  turn: (looked: number) => Promise<void>,
): Promise<ReadonlySet<string> | undefined> {
  const cover = new Cover(db, turn);
  const conflicted = [...new Set(sets.flatMap((set) => [...set]))];
  const positions = await cover.positions(conflicted);
  if (positions.size < conflicted.length) return undefined;
  const reaches: Map<number, number>[] = [];
  for (const set of sets) {
    const reach = new Map<number, number>();
    for (const id of set) raise(reach, positions.get(id)!.chain, positions.get(id)!.sequence);
    reaches.push(reach);
  }
  for (const reach of reaches) await cover.follow(reach, [...reach.keys()]);
  const shared = new SharedChains(cover);
  if (!(await shared.add(await common.likely([])))) return undefined;
  let open = shared.notReached(await openEvents(db, gapsBetween(reaches, shared.reach, positions), positions, turn));
  if (open.length === 0) return new Set();
  if (!(await shared.add(await common.likely(open.map(({ event_id: id }) => id))))) return undefined;
  open = shared.notReached(open);
  let some: string[] = [];
  const lookOn = async (): Promise<boolean> => {
    const isPlaced = await shared.add(some, lowestOf(open));
    open = shared.notReached(open);
    some = [];
    return isPlaced;
  };
  for (const id of common.all()) {
    if (open.length === 0) break;
    if (some.push(id) < idsPerTurn) continue;
    if (!(await lookOn())) return undefined;
  }
  if (open.length > 0 && !(await lookOn())) return undefined;
  return new Set(open.map(({ event_id: id }) => id));
}

/** Per chain, what lies above the least reach and up to the greatest; without gaps that hold nothing but one conflicted event. */
function gapsBetween(
  reaches: readonly ReadonlyMap<number, number>[],
  shared: ReadonlyMap<number, number>,
  conflicted: ReadonlyMap<string, ChainPosition>,
): Gap[] {
  const known = new Set([...conflicted.values()].map(({ chain, sequence }) => `${chain} ${sequence}`));
  const most = new Map<number, number>();
  const [first = new Map<number, number>(), ...others] = reaches;
  for (const reach of reaches) for (const [chain, upTo] of reach) raise(most, chain, upTo);
  const gaps: Gap[] = [];
  for (const [chain, upTo] of most) {
    let least = first.get(chain) ?? 0;
    for (const reach of others) if (least > 0) least = Math.min(least, reach.get(chain) ?? 0);
    least = Math.max(least, shared.get(chain) ?? 0);
    if (upTo > least && !(upTo === least + 1 && known.has(`${chain} ${upTo}`))) gaps.push([chain, least, upTo]);
  }
  return gaps;
}

/** The events in gaps, without the conflicted ones. */
async function openEvents(
  db: Db,
  gaps: readonly Gap[],
  conflicted: ReadonlyMap<string, ChainPosition>,
  turn: (looked: number) => Promise<void>,
): Promise<PositionRow[]> {
  const open: PositionRow[] = [];
  for (let from = 0; from < gaps.length; from += gapsAtOnce) {
    if (from > 0) await turn(gapsAtOnce);
    for (const row of await rowsInGaps(db, gaps.slice(from, from + gapsAtOnce)))
      if (!conflicted.has(row.event_id)) open.push(row);
  }
  return open;
}

/** The lowest generation of some events; what has a lower one leads to none of them. */
const lowestOf = (events: readonly PositionRow[]): number =>
  events.reduce((lowest, { generation }) => Math.min(lowest, generation ?? -1), Infinity);

/** The chain cover as one question needs it: what is read of it is read once. */
class Cover {
  readonly #links = new Map<number, readonly Link[]>();

  constructor(
    private readonly db: Db,
    private readonly turn: (looked: number) => Promise<void>,
  ) {}

  async positions(eventIds: readonly string[]): Promise<Map<string, ChainPosition>> {
    if (eventIds.length <= idsPerTurn) return selectChainPositions(this.db, eventIds);
    const found = new Map<string, ChainPosition>();
    for (let start = 0; start < eventIds.length; start += idsPerTurn) {
      for (const entry of await selectChainPositions(this.db, eventIds.slice(start, start + idsPerTurn)))
        found.set(...entry);
      await this.turn(idsPerTurn);
    }
    return found;
  }

  /**
   * Follows links from chains of which it is known how far they are reached, until nothing is reached that was not before.
   * @param linked how far chains are reached by links; is raised
   */
  async follow(reach: Map<number, number>, from: readonly number[], linked = new Map<number, number>()): Promise<void> {
    await this.#read(from);
    const pending = [...from];
    let looked = 0;
    for (let chain = pending.pop(); chain !== undefined; chain = pending.pop()) {
      const upTo = reach.get(chain)!;
      for (const [at, target, targetSequence] of this.#links.get(chain) ?? []) {
        if (at > upTo) continue;
        raise(linked, target, targetSequence);
        if (raise(reach, target, targetSequence)) pending.push(target);
      }
      // No event was looked at for it.
      if (++looked % idsPerTurn === 0) await this.turn(0);
    }
  }

  async #read(chains: readonly number[]): Promise<void> {
    let frontier = chains.filter((chain) => !this.#links.has(chain));
    while (frontier.length > 0) {
      const next = new Set<number>();
      for (let start = 0; start < frontier.length; start += idsPerTurn) {
        if (start > 0) await this.turn(idsPerTurn);
        const some = frontier.slice(start, start + idsPerTurn);
        const links = await selectLinks(this.db, some);
        for (const chain of some) this.#links.set(chain, links.get(chain) ?? []);
        for (const list of links.values()) for (const [, target] of list) next.add(target);
      }
      frontier = [...next].filter((chain) => !this.#links.has(chain));
    }
  }
}

/** What the events reach on which state sets agree, as far as they were looked at. */
class SharedChains {
  readonly reach = new Map<number, number>();

  constructor(private readonly cover: Cover) {}

  /**
   * @param lowest events of a lower generation lead nowhere that matters
   * @returns whether all have a place in the cover
   */
  async add(eventIds: readonly string[], lowest = -1): Promise<boolean> {
    const wanted = new Set(eventIds);
    const positions = await this.cover.positions([...wanted]);
    if (positions.size < wanted.size) return false;
    const raised = new Set<number>();
    for (const { chain, sequence, generation } of positions.values())
      if ((generation ?? Infinity) >= lowest && raise(this.reach, chain, sequence)) raised.add(chain);
    await this.cover.follow(this.reach, [...raised]);
    return true;
  }

  notReached(events: readonly PositionRow[]): PositionRow[] {
    return events.filter(({ chain_id: chain, sequence_number: at }) => (this.reach.get(chain) ?? 0) < at);
  }
}

type Link = readonly [sequence: number, target: number, targetSequence: number];

type Gap = readonly [chain: number, above: number, upTo: number];

/** The links of some chains, by chain; of those that have any. */
async function selectLinks(db: Db, chains: readonly number[]): Promise<Map<number, Link[]>> {
  const links = new Map<number, Link[]>();
  const rows = await db.query<{ origin: number; at: number; target: number; reach: number }>(
    `SELECT origin_chain_id AS origin, origin_sequence_number AS at, target_chain_id AS target,
       target_sequence_number AS reach FROM event_auth_chain_links WHERE ${db.dialect.anyOf('origin_chain_id')}`,
    [chains],
  );
  for (const row of rows) {
    const list = links.get(row.origin);
    if (list) list.push([row.at, row.target, row.reach]);
    else links.set(row.origin, [[row.at, row.target, row.reach]]);
  }
  return links;
}

/** Gaps that are looked into at once. */
const gapsAtOnce = 100;

/** The events in a few gaps. */
function rowsInGaps(db: Db, gaps: readonly Gap[]): Promise<PositionRow[]> {
  return db.query<PositionRow>(
    `SELECT event_id, chain_id, sequence_number, generation FROM event_auth_chains WHERE ${gaps
      .map(() => '(chain_id = ? AND sequence_number > ? AND sequence_number <= ?)')
      .join(' OR ')}`,
    gaps.flat(),
  );
}

/**
 * The auth chain of events: everything that their auth events lead to, by the chain cover where it is complete.
 * @param authEventsOf names the auth events of events that have no place in the cover
 * @param turn lets others run, after so many more events were looked at
 * @returns ids; those of the events themselves only where others of them rest upon them
 */
export async function authChainOf(
  db: Db,
  eventIds: readonly string[],
  authEventsOf: (eventIds: readonly string[]) => Promise<readonly string[]>,
  turn: (looked: number) => Promise<void>,
): Promise<Set<string>> {
  const cover = new Cover(db, turn);
  const found = new Set<string>();
  const included = new Map<number, number>();
  const followed = new Map<number, number>();
  const seen = new Set(eventIds);
  for (let [ids, areGiven] = [[...seen], true]; ids.length > 0; areGiven = false) {
    const positions = await cover.positions(ids);
    for (const { chain, sequence } of positions.values()) {
      raise(followed, chain, sequence);
      raise(included, chain, areGiven ? sequence - 1 : sequence);
    }
    const unplaced = ids.filter((id) => !positions.has(id));
    if (!areGiven) for (const id of unplaced) found.add(id);
    const named = unplaced.length === 0 ? [] : await authEventsOf(unplaced);
    // Named twice: once as given, once as what another rests upon.
    for (const id of named) if (seen.has(id)) found.add(id);
    ids = [...new Set(named)].filter((id) => !seen.has(id));
    for (const id of ids) seen.add(id);
  }
  await cover.follow(followed, [...followed.keys()], included);
  // Most of a room's state has nothing of its own chain before it.
  const reached = [...included].flatMap(([chain, upTo]) => (upTo > 0 ? [[chain, 0, upTo] as const] : []));
  for (const { event_id: id } of await openEvents(db, reached, new Map(), turn)) found.add(id);
  return found;
}

/** Raises how far a chain is reached; whether that is further than it was. */
function raise(reach: Map<number, number>, chain: number, upTo: number): boolean {
  if ((reach.get(chain) ?? 0) >= upTo) return false;
  reach.set(chain, upTo);
  return true;
}
