import type { CurrentMembership } from '../sections/room-list.js';
import type { ConnectionMemory, RoomMemory } from './connections.js';
import type { ListedRoom, RoomSection, Selection } from './lists.js';
import { RequiredState } from './required-state.js';
import type { RoomConfig } from './request.js';

/** One room of an answer, and how much of it. */
export interface RoomPart {
  readonly roomId: string;
  readonly section: RoomSection;
  readonly membership: CurrentMembership;
  /** Absent for a room that is gone from every list. */
  readonly listed: ListedRoom | undefined;
  readonly config: RoomConfig;
  readonly memory: RoomMemory | undefined;
  /** The client knows nothing of the room yet. */
  readonly initial: boolean;
  /** The client wants a longer timeline than it was sent: it gets the last events once more. */
  readonly expanded: boolean;
  /** What it wanted of the state before, where that is not what it wants now. */
  readonly formerState: RequiredState | undefined;
  /** Events from behind this position are news. */
  readonly after: number;
  /** The room has to be told even where nothing happened: an earlier answer passed it over, or its counts changed. */
  readonly always: boolean;
}

/** What an answer is going to hold. */
export interface Plan {
  readonly parts: readonly RoomPart[];
  /** Rooms of the selection that are left for the next request. */
  readonly deferred: ReadonlySet<string>;
  /** What the connection remembers of rooms about which nothing is sent. */
  readonly changes: ReadonlyMap<string, RoomMemory>;
}

/** Where a plan is made. */
export interface PlanContext {
  readonly memory: ConnectionMemory | undefined;
  /** Position of the events up to which live rooms were sent; absent in a connection's first request. */
  readonly since: number | undefined;
  /** Of live rooms, those in which something happened after `since`. */
  readonly changed: ReadonlySet<string>;
  /** Rooms whose unread counts changed though nothing happened: the user has read them. */
  readonly read: ReadonlySet<string>;
  /** Rooms to which the user was invited or at which it knocked after `since`. */
  readonly asked: ReadonlySet<string>;
}

/** Events of timelines in one answer, roughly: what is beyond is left for the next request, which follows at once. */
const maxEvents = 20_000;
const maxRooms = 5_000;

/** Decides for each room of the selection what of it is sent, and for every other what the connection has missed. */
export function planRooms(selection: Selection, left: readonly CurrentMembership[], context: PlanContext): Plan {
  const { memory, since = 0 } = context;
  const parts: RoomPart[] = [];
  const deferred = new Set<string>();
  const changes = new Map<string, RoomMemory>();
  const looked = new Set<string>();
  let events = 0;
  for (const [listed, config] of selection.rooms) {
    const { roomId } = listed;
    const known = memory?.rooms.get(roomId);
    const part = partOf(listed, config, known, since, context);
    if (part === undefined) {
      looked.add(roomId);
      const current = known && withConfig(known, config);
      if (current !== undefined && current !== known) changes.set(roomId, current);
      continue;
    }
    const isWhole = part.initial || part.expanded;
    if (isWhole && parts.length > 0 && (events + config.timelineLimit > maxEvents || parts.length >= maxRooms)) {
      deferred.add(roomId);
      continue;
    }
    if (isWhole) events += config.timelineLimit;
    looked.add(roomId);
    parts.push(part);
  }
  for (const membership of left) {
    const { roomId } = membership;
    const known = memory?.rooms.get(roomId);
    if (known === undefined || looked.has(roomId)) continue;
    // Who is banned after going, or no longer, hears of that too.
    if (known.section === 'leave' && membership.streamOrdering <= since) continue;
    looked.add(roomId);
    parts.push(leavePart(membership, known, since));
  }
  for (const [roomId, known] of memory?.rooms ?? []) {
    if (known.sentUpTo !== undefined || looked.has(roomId) || known.section === 'leave') continue;
    const isMissed =
      known.section === 'join' ? context.changed.has(roomId) || context.read.has(roomId) : context.asked.has(roomId);
    if (isMissed) changes.set(roomId, { ...known, sentUpTo: since });
  }
  return { parts, deferred, changes };
}

function partOf(
  listed: ListedRoom,
  config: RoomConfig,
  known: RoomMemory | undefined,
  since: number,
  { changed, read }: PlanContext,
): RoomPart | undefined {
  const { roomId, section, membership } = listed;
  const base = { roomId, section, membership, listed, config, memory: known };
  const isRenewed = section !== 'join' && membership.streamOrdering > (known?.sentUpTo ?? since);
  if (known?.section !== section || (isRenewed && section !== 'leave')) {
    return { ...base, initial: true, expanded: false, formerState: undefined, after: 0, always: true };
  }
  if (section !== 'join') return isRenewed ? { ...leavePart(membership, known, since), listed, config } : undefined;
  const expanded = config.timelineLimit > known.timelineLimit;
  const differs = config.requiredState.key !== known.requiredState;
  const always = known.sentUpTo !== undefined || read.has(roomId);
  if (!expanded && !differs && !always && !changed.has(roomId)) return undefined;
  return {
    ...base,
    initial: false,
    expanded,
    formerState: differs ? RequiredState.parse(known.requiredState) : undefined,
    after: known.sentUpTo ?? since,
    always,
  };
}

function leavePart(membership: CurrentMembership, memory: RoomMemory, since: number): RoomPart {
  return {
    roomId: membership.roomId,
    section: 'leave',
    membership,
    listed: undefined,
    config: { timelineLimit: memory.timelineLimit, requiredState: RequiredState.parse(memory.requiredState) },
    memory,
    initial: false,
    expanded: false,
    formerState: undefined,
    after: memory.sentUpTo ?? since,
    always: true,
  };
}

/** A shorter timeline takes effect without anything being sent. */
function withConfig(known: RoomMemory, config: RoomConfig): RoomMemory {
  if (known.timelineLimit === config.timelineLimit && known.requiredState === config.requiredState.key) return known;
  return { ...known, timelineLimit: config.timelineLimit, requiredState: config.requiredState.key };
}
