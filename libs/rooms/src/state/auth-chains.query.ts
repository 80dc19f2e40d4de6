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

/**
 * The auth difference by the chain cover: per chain, how far each state set reaches; what lies between the least and the
 * greatest reach is in the chains of some sets only.
 * @param sets per state set, ids of its events that are not in every set
 * @param common events in every state set; they reach the same in all
 * @returns `undefined` when an event has no place in the cover
 */
export async function authDifference(
  db: Db,
  sets: readonly ReadonlySet<string>[],
  common: Iterable<string>,
): Promise<ReadonlySet<string> | undefined> {
  const shared = [...common];
  const positions = await selectChainPositions(db, [...new Set([...sets.flatMap((set) => [...set]), ...shared])]);
  const reaches: Map<number, number>[] = [];
  const startingPoints = (eventIds: Iterable<string>): Map<number, number> | undefined => {
    const reach = new Map<number, number>();
    for (const eventId of eventIds) {
      const position = positions.get(eventId);
      if (!position) return undefined;
      if ((reach.get(position.chain) ?? 0) < position.sequence) reach.set(position.chain, position.sequence);
    }
    return reach;
  };
  for (const set of sets) {
    const reach = startingPoints([...set, ...shared]);
    if (!reach) return undefined;
    reaches.push(reach);
  }
  const links = await linksFrom(db, new Set(reaches.flatMap((reach) => [...reach.keys()])));
  for (const reach of reaches) spread(reach, links);
  const gaps: [chain: number, above: number, upTo: number][] = [];
  for (const chain of new Set(reaches.flatMap((reach) => [...reach.keys()]))) {
    const all = reaches.map((reach) => reach.get(chain) ?? 0);
    const least = Math.min(...all);
    const most = Math.max(...all);
    if (most > least) gaps.push([chain, least, most]);
  }
  return eventsInGaps(db, gaps);
}

type Link = readonly [sequence: number, target: number, targetSequence: number];

/** All links that can be followed from these chains, level by level: one query per hop between chains. */
async function linksFrom(db: Db, start: ReadonlySet<number>): Promise<Map<number, Link[]>> {
  const links = new Map<number, Link[]>();
  let frontier = [...start];
  const seen = new Set(frontier);
  while (frontier.length > 0) {
    const rows = await db.query<{ origin: number; at: number; target: number; reach: number }>(
      `SELECT origin_chain_id AS origin, origin_sequence_number AS at, target_chain_id AS target,
         target_sequence_number AS reach FROM event_auth_chain_links WHERE ${db.dialect.anyOf('origin_chain_id')}`,
      [frontier],
    );
    const next = new Set<number>();
    for (const row of rows) {
      const list = links.get(row.origin);
      if (list) list.push([row.at, row.target, row.reach]);
      else links.set(row.origin, [[row.at, row.target, row.reach]]);
      if (!seen.has(row.target)) next.add(row.target);
    }
    for (const chain of next) seen.add(chain);
    frontier = [...next];
  }
  return links;
}

/** Follows links until nothing is reached that was not before. */
function spread(reach: Map<number, number>, links: ReadonlyMap<number, readonly Link[]>): void {
  const pending = [...reach.keys()];
  for (let chain = pending.pop(); chain !== undefined; chain = pending.pop()) {
    const upTo = reach.get(chain)!;
    for (const [at, target, targetSequence] of links.get(chain) ?? []) {
      if (at > upTo || (reach.get(target) ?? 0) >= targetSequence) continue;
      reach.set(target, targetSequence);
      pending.push(target);
    }
  }
}

async function eventsInGaps(db: Db, gaps: readonly (readonly [number, number, number])[]): Promise<Set<string>> {
  const events = new Set<string>();
  const pageSize = 100;
  for (let from = 0; from < gaps.length; from += pageSize) {
    const page = gaps.slice(from, from + pageSize);
    const rows = await db.query<{ event_id: string }>(
      `SELECT event_id FROM event_auth_chains WHERE ${page
        .map(() => '(chain_id = ? AND sequence_number > ? AND sequence_number <= ?)')
        .join(' OR ')}`,
      page.flat(),
    );
    for (const row of rows) events.add(row.event_id);
  }
  return events;
}

/**
 * The auth chain of events: everything that their auth events lead to, by the chain cover where it is complete.
 * @param authEventsOf names the auth events of events that have no place in the cover
 * @returns ids; those of the events themselves only where others of them rest upon them
 */
export async function authChainOf(
  db: Db,
  eventIds: readonly string[],
  authEventsOf: (eventIds: readonly string[]) => Promise<readonly string[]>,
): Promise<Set<string>> {
  const found = new Set<string>();
  const included = new Map<number, number>();
  const followed = new Map<number, number>();
  const seen = new Set(eventIds);
  for (let [ids, areGiven] = [[...seen], true]; ids.length > 0; areGiven = false) {
    const positions = await selectChainPositions(db, ids);
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
  await followLinks(db, followed, included);
  // Most of a room's state has nothing of its own chain before it.
  const reached = [...included].flatMap(([chain, upTo]) => (upTo > 0 ? [[chain, 0, upTo] as const] : []));
  for (const id of await eventsInGaps(db, reached)) found.add(id);
  return found;
}

/** Raises how far a chain is reached; whether that is further than it was. */
function raise(reach: Map<number, number>, chain: number, upTo: number): boolean {
  if ((reach.get(chain) ?? 0) >= upTo) return false;
  reach.set(chain, upTo);
  return true;
}

/** Follows links from chains as far as they are known to be reached, until nothing new is. */
async function followLinks(db: Db, followed: Map<number, number>, included: Map<number, number>): Promise<void> {
  const links = await linksFrom(db, new Set(followed.keys()));
  const pending = [...followed.keys()];
  for (let chain = pending.pop(); chain !== undefined; chain = pending.pop()) {
    const upTo = followed.get(chain)!;
    for (const [at, target, targetSequence] of links.get(chain) ?? []) {
      if (at > upTo) continue;
      raise(included, target, targetSequence);
      if (raise(followed, target, targetSequence)) pending.push(target);
    }
  }
}
