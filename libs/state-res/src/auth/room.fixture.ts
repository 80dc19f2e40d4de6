import {
  buildEvent,
  type RoomEvent,
  roomVersionRules,
  type RoomVersionRules,
  SigningKey,
  signJson,
} from '@rookery/events';
import { checkAuthEvents } from './auth-events.js';
import { checkAuth } from './check-auth.js';
import { authStateOf, type AuthVerdict } from './verdict.js';

const columns = ['1 2', '3 4 5', '6', '7', '8 9', '10', '11', '12'].map((text) => text.split(' '));

export const alice = '@alice:a.example'; // created the room
export const bob = '@bob:a.example'; // level 50
export const carol = '@carol:b.example'; // level 0, in the room
export const dave = '@dave:b.example'; // never seen
export const ivy = '@ivy:b.example'; // invited
export const kim = '@kim:b.example'; // knocked
export const mallory = '@mallory:b.example'; // banned
export const eve = '@eve:b.example'; // level 50, in the room

export type Content = Record<string, unknown>;
interface Parts {
  readonly stateKey?: string;
  readonly prev?: readonly string[];
  readonly auth?: readonly string[];
  readonly roomId?: string;
  readonly redacts?: string;
}

export const key = SigningKey.fromSeed('1', Buffer.alloc(32, 7));
export const otherKey = SigningKey.fromSeed('1', Buffer.alloc(32, 8));

/** A room in which somebody has every membership, and the events that somebody might send there. */
export class Room {
  readonly rules: RoomVersionRules;
  readonly create: RoomEvent;
  readonly roomId: string;
  readonly state = new Map<string, RoomEvent>();
  private count = 0;

  constructor(readonly version: string) {
    this.rules = roomVersionRules(version) as RoomVersionRules;
    this.create = this.makeCreate({});
    this.roomId = this.create.roomId;
    this.put(this.create);
    const levels = { [bob]: 50, [eve]: 50 };
    this.set('m.room.power_levels', '', {
      users: this.isV12 ? levels : { ...levels, [alice]: 100 },
      events: { 'm.odd': 60, 'm.high': 70, 'm.topic': 50 },
      notifications: { room: 50, high: 70 },
      invite: 50,
    });
    this.set('m.room.join_rules', '', { join_rule: 'invite' });
    for (const id of [alice, bob, carol, eve]) this.member(id, 'join');
    this.member(ivy, 'invite');
    this.member(kim, 'knock');
    this.member(mallory, 'ban');
  }

  get isV12(): boolean {
    return this.rules.privilegedCreators;
  }

  makeCreate(content: Content, parts: Parts & { sender?: string } = {}): RoomEvent {
    const defaults: Content = { room_version: this.version };
    if (!this.rules.creatorIsSender) defaults['creator'] = alice;
    return this.event(
      'm.room.create',
      parts.sender ?? alice,
      { ...defaults, ...content },
      {
        stateKey: '',
        prev: [],
        ...(this.rules.createEventImplied ? {} : { roomId: '!room:a.example' }),
        ...parts,
      },
    );
  }

  event(type: string, sender: string, content: Content, parts: Parts = {}): RoomEvent {
    const roomId = parts.roomId ?? (type === 'm.room.create' ? undefined : this.roomId);
    return buildEvent(
      {
        type,
        sender,
        content: Object.fromEntries(Object.entries(content).filter(([, value]) => value !== undefined)),
        stateKey: parts.stateKey,
        roomId,
        redacts: parts.redacts,
        prevEventIds: parts.prev ?? [`$previous:a.example`],
        authEventIds: parts.auth ?? [],
        originServerTs: 1_700_000_000_000 + this.count,
        depth: 10 + this.count,
        eventId: `$${this.count++}:${sender.split(':')[1]}`,
      },
      this.rules,
    );
  }

  put(event: RoomEvent): RoomEvent {
    this.state.set(`${event.type} ${event.stateKey}`, event);
    return event;
  }

  set(type: string, stateKey: string, content: Content, sender = alice): RoomEvent {
    return this.put(this.event(type, sender, content, { stateKey }));
  }

  member(user: string, membership: string): RoomEvent {
    return this.set('m.room.member', user, { membership }, membership === 'ban' ? alice : user);
  }

  joinRule(join_rule: string): this {
    this.set('m.room.join_rules', '', { join_rule });
    return this;
  }

  /** The content of the room's power levels, changed. */
  levels(changes: Content): Content {
    const current = this.state.get('m.room.power_levels ')?.content ?? {};
    return { ...current, ...changes };
  }

  withLevels(changes: Content): this {
    this.set('m.room.power_levels', '', this.levels(changes));
    return this;
  }

  users(changes: Record<string, unknown>): Content {
    const users = this.state.get('m.room.power_levels ')?.content['users'] as Content;
    const merged = { ...users, ...changes };
    return { users: Object.fromEntries(Object.entries(merged).filter(([, value]) => value !== undefined)) };
  }

  /** A membership event by `sender` about `target`. */
  membership(sender: string, target: string, membership: unknown, content: Content = {}, parts: Parts = {}): RoomEvent {
    return this.event('m.room.member', sender, { membership, ...content }, { stateKey: target, ...parts });
  }

  powerLevels(sender: string, changes: Content): RoomEvent {
    return this.event('m.room.power_levels', sender, this.levels(changes), { stateKey: '' });
  }

  check(event: RoomEvent): AuthVerdict {
    return checkAuth(event, authStateOf(this.state.values()));
  }

  /** The room's events for these pieces of state. */
  cite(...keys: string[]): RoomEvent[] {
    const usual = this.rules.createEventImplied ? [] : ['m.room.create '];
    return [...usual, ...keys].map((name) => this.state.get(name) as RoomEvent);
  }

  checkCited(type: string, cited: readonly RoomEvent[], rejected?: ReadonlySet<string>): AuthVerdict {
    const auth = cited.map((event) => event.eventId);
    return checkAuthEvents(this.event(type, bob, {}, { auth }), cited, rejected && { rejected });
  }

  /** A redeemed third-party invite of `target`. */
  redeemed(sender: string, target: string, changes: Content = {}, by = key): Content {
    const signed = signJson({ mxid: target, token: 'token', ...changes }, 'id.example', by);
    return { third_party_invite: { display_name: 'somebody', signed } };
  }
}

/** One numbered rule, with an event that it refuses and a sibling that passes. */
export interface Case {
  readonly what: string;
  /** The rule's number in versions 1 and 2, 3 to 5, 6, 7, 8 and 9, 10, 11, 12; `-` where a version does not have it. */
  readonly rule: string;
  refused(room: Room): AuthVerdict;
  allowed(room: Room): AuthVerdict;
}

/** The cases whose rule a room version has, with the number that it has there. */
export function casesOf(version: string, cases: readonly Case[]): { row: Case; rule: string }[] {
  const column = columns.findIndex((versions) => versions.includes(version));
  return cases.map((row) => ({ row, rule: row.rule.split(' ')[column] ?? '-' })).filter(({ rule }) => rule !== '-');
}
