import {
  buildEvent,
  type RoomEvent,
  roomVersionRules,
  roomVersions,
  type RoomVersionRules,
  signEvent,
  SigningKey,
  signJson,
} from '@rookery/events';
import { checkAuthEvents } from './auth-events.js';
import { checkAuth } from './check-auth.js';
import { authStateOf, type AuthVerdict } from './verdict.js';

/**
 * The numbered rules of the section "Authorization rules" of every room version, each with an event that it refuses and
 * a sibling that passes. The columns say how the versions number the rule; `-` where a version does not have it.
 */
const columns = ['1 2', '3 4 5', '6', '7', '8 9', '10', '11', '12'].map((text) => text.split(' '));

const alice = '@alice:a.example'; // created the room
const bob = '@bob:a.example'; // level 50
const carol = '@carol:b.example'; // level 0, in the room
const dave = '@dave:b.example'; // never seen
const ivy = '@ivy:b.example'; // invited
const kim = '@kim:b.example'; // knocked
const mallory = '@mallory:b.example'; // banned
const eve = '@eve:b.example'; // level 50, in the room

type Content = Record<string, unknown>;
interface Parts {
  readonly stateKey?: string;
  readonly prev?: readonly string[];
  readonly auth?: readonly string[];
  readonly roomId?: string;
  readonly redacts?: string;
}

const key = SigningKey.fromSeed('1', Buffer.alloc(32, 7));
const otherKey = SigningKey.fromSeed('1', Buffer.alloc(32, 8));

/** A room in which somebody has every membership, and the events that somebody might send there. */
class Room {
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

interface Case {
  readonly what: string;
  /** One number per column. */
  readonly rule: string;
  refused(room: Room): AuthVerdict;
  allowed(room: Room): AuthVerdict;
}

const power = 'm.room.power_levels ';
const own = `m.room.member ${bob}`;
const offer = { public_key: key.publicKey, public_keys: [{ public_key: key.publicKey }] };
const join = (room: Room, user: string, content: Content = {}): AuthVerdict =>
  room.check(room.membership(user, user, 'join', content));
const scalar = ['users_default', 'events_default', 'state_default', 'ban', 'redact', 'kick', 'invite'];

const cases: Case[] = [
  {
    what: 'a create event has no previous events',
    rule: '1.1 1.1 1.1 1.1 1.1 1.1 1.1 1.1',
    refused: (room) => room.check(room.makeCreate({}, { prev: ['$x:a.example'] })),
    allowed: (room) => room.check(room.makeCreate({})),
  },
  {
    what: 'the room id fits the creator',
    rule: '1.2 1.2 1.2 1.2 1.2 1.2 1.2 -',
    refused: (room) => room.check(room.makeCreate({}, { sender: dave })),
    allowed: (room) => room.check(room.makeCreate({}, { sender: bob })),
  },
  {
    what: 'a create event has no room id',
    rule: '- - - - - - - 1.2',
    refused: (room) => {
      const { pdu, ...event } = room.makeCreate({});
      return room.check({ ...event, pdu: { ...pdu, room_id: event.roomId } });
    },
    allowed: (room) => room.check(room.makeCreate({})),
  },
  {
    what: 'the room version is known',
    rule: '1.3 1.3 1.3 1.3 1.3 1.3 1.3 1.3',
    refused: (room) => room.check(room.makeCreate({ room_version: 'rookery.unknown' })),
    allowed: (room) => room.check(room.makeCreate({ room_version: room.version })),
  },
  {
    what: 'the creator is named',
    rule: '1.4 1.4 1.4 1.4 1.4 1.4 - -',
    refused: (room) => room.check(room.makeCreate({ creator: undefined })),
    allowed: (room) => room.check(room.makeCreate({ creator: alice })),
  },
  {
    what: 'additional creators are user ids',
    rule: '- - - - - - - 1.4',
    refused: (room) => room.check(room.makeCreate({ additional_creators: ['bob'] })),
    allowed: (room) => room.check(room.makeCreate({ additional_creators: [bob] })),
  },
  {
    what: 'additional creators are a list',
    rule: '- - - - - - - 1.4',
    refused: (room) => room.check(room.makeCreate({ additional_creators: { 0: bob } })),
    allowed: (room) => room.check(room.makeCreate({ additional_creators: [] })),
  },
  {
    what: 'the room id is that of a known create event',
    rule: '- - - - - - - 2',
    refused: (room) =>
      room.check(room.event('m.x', bob, {}, { roomId: '!31hneApxJ_1o-63DmFrpeqnkFfWppnzWso1JvH3ogLM' })),
    allowed: (room) => room.check(room.event('m.x', bob, {})),
  },
  {
    what: 'no auth event is named twice',
    rule: '2.1 2.1 2.1 2.1 2.1 2.1 2.1 3.1',
    refused: (room) => room.checkCited('m.x', room.cite(power, own, own)),
    allowed: (room) => room.checkCited('m.x', room.cite(power, own)),
  },
  {
    what: 'no two auth events hold the same state',
    rule: '2.1 2.1 2.1 2.1 2.1 2.1 2.1 3.1',
    refused: (room) => {
      const [older] = room.cite(own).slice(-1) as [RoomEvent];
      room.member(bob, 'join');
      return room.checkCited('m.x', [...room.cite(own), older]);
    },
    allowed: (room) => room.checkCited('m.x', room.cite(own)),
  },
  {
    what: 'auth events are those of the selection',
    rule: '2.2 2.2 2.2 2.2 2.2 2.2 2.2 3.2',
    refused: (room) => room.checkCited('m.x', room.cite(own, `m.room.member ${carol}`)),
    allowed: (room) => room.checkCited('m.x', room.cite(own)),
  },
  {
    what: 'the create event is implied',
    rule: '- - - - - - - 3.2',
    refused: (room) => room.checkCited('m.x', [room.create, ...room.cite(own)]),
    allowed: (room) => room.checkCited('m.x', room.cite(own)),
  },
  {
    what: 'no auth event was rejected',
    rule: '2.3 2.3 2.3 2.3 2.3 2.3 2.3 3.3',
    refused: (room) => {
      const cited = room.cite(power, own);
      return room.checkCited('m.x', cited, new Set(cited.slice(-1).map((event) => event.eventId)));
    },
    allowed: (room) => room.checkCited('m.x', room.cite(power, own), new Set(['$another'])),
  },
  {
    what: 'the create event is cited',
    rule: '2.4 2.4 2.4 2.4 2.4 2.4 2.4 -',
    refused: (room) => room.checkCited('m.x', room.cite(power, own).slice(1)),
    allowed: (room) => room.checkCited('m.x', room.cite(power, own)),
  },
  {
    what: 'auth events are of the same room',
    rule: '2.5 2.5 2.5 2.5 2.5 2.5 2.5 3.4',
    refused: (room) => {
      const foreign = new Room(room.version);
      const elsewhere = foreign.event('m.room.power_levels', alice, {}, { stateKey: '', roomId: '!other:a.example' });
      return room.checkCited('m.x', [...room.cite(own), elsewhere]);
    },
    allowed: (room) => room.checkCited('m.x', room.cite(power, own)),
  },
  {
    what: 'a closed room admits its own server only',
    rule: '3 3 3 3 3 3 3 4',
    refused: (room) => {
      const closed = { ...room.create, content: { ...room.create.content, 'm.federate': false } };
      room.put(closed);
      return room.check(room.event('m.x', carol, {}));
    },
    allowed: (room) => {
      const closed = { ...room.create, content: { ...room.create.content, 'm.federate': false } };
      room.put(closed);
      return room.check(room.event('m.x', bob, {}));
    },
  },
  {
    what: 'aliases have a state key',
    rule: '4.1 4.1 - - - - - -',
    refused: (room) => room.check(room.event('m.room.aliases', dave, {})),
    allowed: (room) => room.check(room.event('m.room.aliases', dave, {}, { stateKey: 'b.example' })),
  },
  {
    what: 'aliases are of the sender’s server',
    rule: '4.2 4.2 - - - - - -',
    refused: (room) => room.check(room.event('m.room.aliases', dave, {}, { stateKey: 'a.example' })),
    allowed: (room) => room.check(room.event('m.room.aliases', dave, {}, { stateKey: 'b.example' })),
  },
  {
    what: 'a membership event has a state key',
    rule: '5.1 5.1 4.1 4.1 4.1 4.1 4.1 5.1',
    refused: (room) => room.check(room.event('m.room.member', carol, { membership: 'join' })),
    allowed: (room) => room.check(room.event('m.room.member', carol, { membership: 'join' }, { stateKey: carol })),
  },
  {
    what: 'a membership event has a membership',
    rule: '5.1 5.1 4.1 4.1 4.1 4.1 4.1 5.1',
    refused: (room) => room.check(room.membership(carol, carol, undefined)),
    allowed: (room) => room.check(room.membership(carol, carol, 'leave')),
  },
  {
    what: 'the authorizing server has signed',
    rule: '- - - - 4.2.1 4.2.1 4.2.1 5.2.1',
    refused: (room) => {
      const event = room.membership(dave, dave, 'join', { join_authorised_via_users_server: bob });
      return checkAuthEvents(signEvent(event, 'b.example', key), room.cite(power, own));
    },
    allowed: (room) => {
      const event = room.membership(dave, dave, 'join', { join_authorised_via_users_server: bob });
      return checkAuthEvents(signEvent(event, 'a.example', key), room.cite(power, own));
    },
  },
  {
    what: 'the signature of the authorizing server is valid',
    rule: '- - - - 4.2.1 4.2.1 4.2.1 5.2.1',
    refused: (room) => {
      const event = room.membership(dave, dave, 'join', { join_authorised_via_users_server: bob });
      const signedBy = (server: string): boolean => server === 'b.example';
      return checkAuthEvents(signEvent(event, 'a.example', key), room.cite(power, own), { signedBy });
    },
    allowed: (room) => {
      const event = room.membership(dave, dave, 'join', { join_authorised_via_users_server: bob });
      return checkAuthEvents(event, room.cite(power, own), { signedBy: (server) => server === 'a.example' });
    },
  },
  {
    what: 'only the creator’s first join needs no join rule',
    rule: '5.2.6 5.2.6 4.2.6 4.2.6 4.3.7 4.3.7 4.3.7 5.3.7',
    refused: (room) => room.check(room.membership(dave, dave, 'join', {}, { prev: [room.create.eventId] })),
    allowed: (room) => {
      room.joinRule('private').state.delete(`m.room.member ${alice}`);
      return room.check(room.membership(alice, alice, 'join', {}, { prev: [room.create.eventId] }));
    },
  },
  {
    what: 'the creator’s join follows the create event only',
    rule: '5.2.6 5.2.6 4.2.6 4.2.6 4.3.7 4.3.7 4.3.7 5.3.7',
    refused: (room) => {
      room.state.delete(`m.room.member ${alice}`);
      return room.check(room.membership(alice, alice, 'join', {}, { prev: [room.create.eventId, '$other:a.example'] }));
    },
    allowed: (room) => {
      room.state.delete(`m.room.member ${alice}`);
      return room.check(room.membership(alice, alice, 'join', {}, { prev: [room.create.eventId] }));
    },
  },
  {
    what: 'nobody joins for another',
    rule: '5.2.2 5.2.2 4.2.2 4.2.2 4.3.2 4.3.2 4.3.2 5.3.2',
    refused: (room) => room.check(room.membership(alice, ivy, 'join')),
    allowed: (room) => room.check(room.membership(ivy, ivy, 'join')),
  },
  {
    what: 'the banned do not join',
    rule: '5.2.3 5.2.3 4.2.3 4.2.3 4.3.3 4.3.3 4.3.3 5.3.3',
    refused: (room) => join(room.joinRule('public'), mallory),
    allowed: (room) => join(room.joinRule('public'), dave),
  },
  {
    what: 'join rule invite lets the invited in',
    rule: '5.2.6 5.2.6 4.2.6 4.2.6 4.3.7 4.3.7 4.3.7 5.3.7',
    refused: (room) => join(room, dave),
    allowed: (room) => join(room, ivy),
  },
  {
    what: 'join rule invite lets members change their profile',
    rule: '5.2.6 5.2.6 4.2.6 4.2.6 4.3.7 4.3.7 4.3.7 5.3.7',
    refused: (room) => join(room, kim),
    allowed: (room) => join(room, carol, { displayname: 'Carol' }),
  },
  {
    what: 'no join rules means invite',
    rule: '5.2.6 5.2.6 4.2.6 4.2.6 4.3.7 4.3.7 4.3.7 5.3.7',
    refused: (room) => {
      room.state.delete('m.room.join_rules ');
      return join(room, dave);
    },
    allowed: (room) => {
      room.state.delete('m.room.join_rules ');
      return join(room, ivy);
    },
  },
  {
    what: 'join rule knock lets the invited in',
    rule: '- - - 4.2.6 4.3.7 4.3.7 4.3.7 5.3.7',
    refused: (room) => join(room.joinRule('knock'), kim),
    allowed: (room) => join(room.joinRule('knock'), ivy),
  },
  {
    what: 'join rule knock is unknown before version 7',
    rule: '5.2.6 5.2.6 4.2.6 - - - - -',
    refused: (room) => join(room.joinRule('knock'), ivy),
    allowed: (room) => join(room.joinRule('invite'), ivy),
  },
  {
    what: 'join rule restricted is unknown before version 8',
    rule: '5.2.6 5.2.6 4.2.6 4.2.6 - - - -',
    refused: (room) => join(room.joinRule('restricted'), ivy),
    allowed: (room) => join(room.joinRule('public'), ivy),
  },
  {
    what: 'join rule knock_restricted is unknown before version 10',
    rule: '5.2.6 5.2.6 4.2.6 4.2.6 4.3.7 - - -',
    refused: (room) => join(room.joinRule('knock_restricted'), ivy),
    allowed: (room) => join(room.joinRule('public'), ivy),
  },
  ...['restricted', 'knock_restricted'].map((rule): Case => {
    const numbers =
      rule === 'restricted' ? '- - - - 4.3.5.2 4.3.5.2 4.3.5.2 5.3.5.2' : '- - - - - 4.3.5.2 4.3.5.2 5.3.5.2';
    return {
      what: `join rule ${rule} asks for somebody who may invite`,
      rule: numbers,
      refused: (room) => join(room.joinRule(rule), dave, { join_authorised_via_users_server: carol }),
      allowed: (room) => join(room.joinRule(rule), dave, { join_authorised_via_users_server: bob }),
    };
  }),
  {
    what: 'the authorizing user is in the room',
    rule: '- - - - 4.3.5.2 4.3.5.2 4.3.5.2 5.3.5.2',
    refused: (room) => {
      room.member(bob, 'leave');
      return join(room.joinRule('restricted'), dave, { join_authorised_via_users_server: bob });
    },
    allowed: (room) => join(room.joinRule('restricted'), dave, { join_authorised_via_users_server: eve }),
  },
  {
    what: 'join rule restricted lets the invited in',
    rule: '- - - - 4.3.5.2 4.3.5.2 4.3.5.2 5.3.5.2',
    refused: (room) => join(room.joinRule('restricted'), dave),
    allowed: (room) => join(room.joinRule('restricted'), ivy),
  },
  {
    what: 'join rule public lets anybody in',
    rule: '5.2.6 5.2.6 4.2.6 4.2.6 4.3.7 4.3.7 4.3.7 5.3.7',
    refused: (room) => join(room.joinRule('private'), ivy),
    allowed: (room) => join(room.joinRule('public'), dave),
  },
  {
    what: 'the banned are not invited by a third party',
    rule: '5.3.1.1 5.3.1.1 4.3.1.1 4.3.1.1 4.4.1.1 4.4.1.1 4.4.1.1 5.4.1.1',
    refused: (room) => {
      room.set('m.room.third_party_invite', 'token', offer, bob);
      return room.check(room.membership(bob, mallory, 'invite', room.redeemed(bob, mallory)));
    },
    allowed: (room) => {
      room.set('m.room.third_party_invite', 'token', offer, bob);
      return room.check(room.membership(bob, dave, 'invite', room.redeemed(bob, dave)));
    },
  },
  {
    what: 'a third-party invite is signed',
    rule: '5.3.1.2 5.3.1.2 4.3.1.2 4.3.1.2 4.4.1.2 4.4.1.2 4.4.1.2 5.4.1.2',
    refused: (room) => room.check(room.membership(bob, dave, 'invite', { third_party_invite: {} })),
    allowed: (room) => {
      room.set('m.room.third_party_invite', 'token', { public_key: key.publicKey }, bob);
      return room.check(room.membership(bob, dave, 'invite', room.redeemed(bob, dave)));
    },
  },
  ...['mxid', 'token'].map((name): Case => ({
    what: `a third-party invite has a ${name}`,
    rule: '5.3.1.3 5.3.1.3 4.3.1.3 4.3.1.3 4.4.1.3 4.4.1.3 4.4.1.3 5.4.1.3',
    refused: (room) => {
      room.set('m.room.third_party_invite', 'token', offer, bob);
      return room.check(room.membership(bob, dave, 'invite', room.redeemed(bob, dave, { [name]: null })));
    },
    allowed: (room) => {
      room.set('m.room.third_party_invite', 'token', { public_keys: offer.public_keys }, bob);
      return room.check(room.membership(bob, dave, 'invite', room.redeemed(bob, dave)));
    },
  })),
  {
    what: 'a third-party invite is for its user',
    rule: '5.3.1.4 5.3.1.4 4.3.1.4 4.3.1.4 4.4.1.4 4.4.1.4 4.4.1.4 5.4.1.4',
    refused: (room) => {
      room.set('m.room.third_party_invite', 'token', offer, bob);
      return room.check(room.membership(bob, dave, 'invite', room.redeemed(bob, '@zoe:b.example')));
    },
    allowed: (room) => {
      room.set('m.room.third_party_invite', 'token', offer, bob);
      return room.check(room.membership(bob, '@zoe:b.example', 'invite', room.redeemed(bob, '@zoe:b.example')));
    },
  },
  {
    what: 'a third-party invite is in the room',
    rule: '5.3.1.5 5.3.1.5 4.3.1.5 4.3.1.5 4.4.1.5 4.4.1.5 4.4.1.5 5.4.1.5',
    refused: (room) => {
      room.set('m.room.third_party_invite', 'token', offer, bob);
      return room.check(room.membership(bob, dave, 'invite', room.redeemed(bob, dave, { token: 'other' })));
    },
    allowed: (room) => {
      room.set('m.room.third_party_invite', 'other', offer, bob);
      return room.check(room.membership(bob, dave, 'invite', room.redeemed(bob, dave, { token: 'other' })));
    },
  },
  {
    what: 'a third-party invite is redeemed by its sender',
    rule: '5.3.1.6 5.3.1.6 4.3.1.6 4.3.1.6 4.4.1.6 4.4.1.6 4.4.1.6 5.4.1.6',
    refused: (room) => {
      room.set('m.room.third_party_invite', 'token', offer, eve);
      return room.check(room.membership(bob, dave, 'invite', room.redeemed(bob, dave)));
    },
    allowed: (room) => {
      room.set('m.room.third_party_invite', 'token', offer, eve);
      return room.check(room.membership(eve, dave, 'invite', room.redeemed(eve, dave)));
    },
  },
  {
    what: 'a third-party invite is signed by one of its keys',
    rule: '5.3.1.8 5.3.1.8 4.3.1.8 4.3.1.8 4.4.1.8 4.4.1.8 4.4.1.8 5.4.1.8',
    refused: (room) => {
      room.set('m.room.third_party_invite', 'token', offer, bob);
      return room.check(room.membership(bob, dave, 'invite', room.redeemed(bob, dave, {}, otherKey)));
    },
    allowed: (room) => {
      const keys = [{ public_key: 'odd' }, { public_key: otherKey.publicKey }];
      room.set('m.room.third_party_invite', 'token', { public_key: key.publicKey, public_keys: keys }, bob);
      return room.check(room.membership(bob, dave, 'invite', room.redeemed(bob, dave, {}, otherKey)));
    },
  },
  {
    what: 'who invites is in the room',
    rule: '5.3.2 5.3.2 4.3.2 4.3.2 4.4.2 4.4.2 4.4.2 5.4.2',
    refused: (room) => {
      room.member(bob, 'leave');
      return room.check(room.membership(bob, dave, 'invite'));
    },
    allowed: (room) => room.check(room.membership(bob, dave, 'invite')),
  },
  ...[carol, mallory].map((target): Case => ({
    what: `nobody invites ${target === carol ? 'a member' : 'the banned'}`,
    rule: '5.3.3 5.3.3 4.3.3 4.3.3 4.4.3 4.4.3 4.4.3 5.4.3',
    refused: (room) => room.check(room.membership(bob, target, 'invite')),
    allowed: (room) => room.check(room.membership(bob, ivy, 'invite')),
  })),
  {
    what: 'who invites has the invite level',
    rule: '5.3.5 5.3.5 4.3.5 4.3.5 4.4.5 4.4.5 4.4.5 5.4.5',
    refused: (room) => room.check(room.membership(carol, dave, 'invite')),
    allowed: (room) => room.check(room.membership(bob, dave, 'invite')),
  },
  {
    what: 'the invite level is 0 unless set',
    rule: '5.3.5 5.3.5 4.3.5 4.3.5 4.4.5 4.4.5 4.4.5 5.4.5',
    refused: (room) => {
      const { invite: _invite, ...levels } = room.levels({ users_default: -1 });
      room.set('m.room.power_levels', '', levels);
      return room.check(room.membership(carol, dave, 'invite'));
    },
    allowed: (room) => {
      const { invite: _invite, ...levels } = room.levels({});
      room.set('m.room.power_levels', '', levels);
      return room.check(room.membership(carol, dave, 'invite'));
    },
  },
  {
    what: 'only who is in, or invited, leaves',
    rule: '5.4.1 5.4.1 4.4.1 4.4.1 4.5.1 4.5.1 4.5.1 5.5.1',
    refused: (room) => room.check(room.membership(dave, dave, 'leave')),
    allowed: (room) => room.check(room.membership(carol, carol, 'leave')),
  },
  {
    what: 'the banned do not leave, the invited may decline',
    rule: '5.4.1 5.4.1 4.4.1 4.4.1 4.5.1 4.5.1 4.5.1 5.5.1',
    refused: (room) => room.check(room.membership(mallory, mallory, 'leave')),
    allowed: (room) => room.check(room.membership(ivy, ivy, 'leave')),
  },
  {
    what: 'a knock is taken back from version 7 on',
    rule: '5.4.1 5.4.1 4.4.1 - - - - -',
    refused: (room) => room.check(room.membership(kim, kim, 'leave')),
    allowed: (room) => room.check(room.membership(ivy, ivy, 'leave')),
  },
  {
    what: 'a knock can be taken back',
    rule: '- - - 4.4.1 4.5.1 4.5.1 4.5.1 5.5.1',
    refused: (room) => room.check(room.membership(dave, dave, 'leave')),
    allowed: (room) => room.check(room.membership(kim, kim, 'leave')),
  },
  {
    what: 'who kicks is in the room',
    rule: '5.4.2 5.4.2 4.4.2 4.4.2 4.5.2 4.5.2 4.5.2 5.5.2',
    refused: (room) => {
      room.member(bob, 'invite');
      return room.check(room.membership(bob, carol, 'leave'));
    },
    allowed: (room) => room.check(room.membership(bob, carol, 'leave')),
  },
  {
    what: 'who unbans has the ban level',
    rule: '5.4.3 5.4.3 4.4.3 4.4.3 4.5.3 4.5.3 4.5.3 5.5.3',
    refused: (room) => room.withLevels({ ban: 51, kick: 0 }).check(room.membership(bob, mallory, 'leave')),
    allowed: (room) => room.withLevels({ ban: 50 }).check(room.membership(bob, mallory, 'leave')),
  },
  {
    what: 'who unbans has the kick level too',
    rule: '5.4.5 5.4.5 4.4.5 4.4.5 4.5.5 4.5.5 4.5.5 5.5.5',
    refused: (room) => room.withLevels({ kick: 51 }).check(room.membership(bob, mallory, 'leave')),
    allowed: (room) => room.withLevels({ kick: 50 }).check(room.membership(bob, mallory, 'leave')),
  },
  {
    what: 'who kicks has the kick level',
    rule: '5.4.5 5.4.5 4.4.5 4.4.5 4.5.5 4.5.5 4.5.5 5.5.5',
    refused: (room) => room.withLevels({ kick: 51 }).check(room.membership(bob, carol, 'leave')),
    allowed: (room) => room.withLevels({ kick: 50 }).check(room.membership(bob, carol, 'leave')),
  },
  {
    what: 'who kicks is above the kicked',
    rule: '5.4.5 5.4.5 4.4.5 4.4.5 4.5.5 4.5.5 4.5.5 5.5.5',
    refused: (room) => room.check(room.membership(bob, eve, 'leave')),
    allowed: (room) => room.check(room.membership(alice, eve, 'leave')),
  },
  {
    what: 'who bans is in the room',
    rule: '5.5.1 5.5.1 4.5.1 4.5.1 4.6.1 4.6.1 4.6.1 5.6.1',
    refused: (room) => {
      room.member(bob, 'leave');
      return room.check(room.membership(bob, carol, 'ban'));
    },
    allowed: (room) => room.check(room.membership(bob, carol, 'ban')),
  },
  {
    what: 'who bans has the ban level',
    rule: '5.5.3 5.5.3 4.5.3 4.5.3 4.6.3 4.6.3 4.6.3 5.6.3',
    refused: (room) => room.withLevels({ ban: 51 }).check(room.membership(bob, dave, 'ban')),
    allowed: (room) => room.withLevels({ ban: 50 }).check(room.membership(bob, dave, 'ban')),
  },
  {
    what: 'who bans is above the banned',
    rule: '5.5.3 5.5.3 4.5.3 4.5.3 4.6.3 4.6.3 4.6.3 5.6.3',
    refused: (room) => room.check(room.membership(bob, eve, 'ban')),
    allowed: (room) => room.check(room.membership(bob, carol, 'ban')),
  },
  {
    what: 'the join rule lets knock',
    rule: '- - - 4.6.1 4.7.1 4.7.1 4.7.1 5.7.1',
    refused: (room) => room.check(room.membership(dave, dave, 'knock')),
    allowed: (room) => room.joinRule('knock').check(room.membership(dave, dave, 'knock')),
  },
  {
    what: 'join rule knock_restricted lets knock from version 10 on',
    rule: '- - - 4.6.1 4.7.1 - - -',
    refused: (room) => room.joinRule('knock_restricted').check(room.membership(dave, dave, 'knock')),
    allowed: (room) => room.joinRule('knock').check(room.membership(dave, dave, 'knock')),
  },
  {
    what: 'join rule knock_restricted lets knock',
    rule: '- - - - - 4.7.1 4.7.1 5.7.1',
    refused: (room) => room.joinRule('restricted').check(room.membership(dave, dave, 'knock')),
    allowed: (room) => room.joinRule('knock_restricted').check(room.membership(dave, dave, 'knock')),
  },
  {
    what: 'nobody knocks for another',
    rule: '- - - 4.6.2 4.7.2 4.7.2 4.7.2 5.7.2',
    refused: (room) => room.joinRule('knock').check(room.membership(carol, dave, 'knock')),
    allowed: (room) => room.joinRule('knock').check(room.membership(dave, dave, 'knock')),
  },
  ...[mallory, ivy, carol].map((user): Case => ({
    what: `${user} does not knock`,
    rule: '- - - 4.6.4 4.7.4 4.7.4 4.7.4 5.7.4',
    refused: (room) => room.joinRule('knock').check(room.membership(user, user, 'knock')),
    allowed: (room) => room.joinRule('knock').check(room.membership(kim, kim, 'knock')),
  })),
  {
    what: 'the membership is known',
    rule: '5.6 5.6 4.6 4.7 4.8 4.8 4.8 5.8',
    refused: (room) => room.check(room.membership(carol, carol, 'lurk')),
    allowed: (room) => room.check(room.membership(carol, carol, 'leave')),
  },
  {
    what: 'knock is unknown before version 7',
    rule: '5.6 5.6 4.6 - - - - -',
    refused: (room) => room.joinRule('knock').check(room.membership(dave, dave, 'knock')),
    allowed: (room) => room.joinRule('public').check(room.membership(dave, dave, 'join')),
  },
  {
    what: 'the membership is text',
    rule: '5.6 5.6 4.6 4.7 4.8 4.8 4.8 5.8',
    refused: (room) => room.check(room.membership(carol, carol, ['join'])),
    allowed: (room) => room.check(room.membership(carol, carol, 'join')),
  },
  ...[dave, ivy, mallory].map((sender): Case => ({
    what: `${sender} is not in the room`,
    rule: '6 6 5 5 5 5 5 6',
    refused: (room) => room.check(room.event('m.room.message', sender, {})),
    allowed: (room) => room.check(room.event('m.room.message', carol, {})),
  })),
  {
    what: 'who invites a third party has the invite level',
    rule: '7.1 7.1 6.1 6.1 6.1 6.1 6.1 7.1',
    refused: (room) => room.check(room.event('m.room.third_party_invite', carol, {}, { stateKey: 'token' })),
    allowed: (room) => room.check(room.event('m.room.third_party_invite', bob, {}, { stateKey: 'token' })),
  },
  {
    what: 'a listed event type needs its level',
    rule: '8 8 7 7 7 7 7 8',
    refused: (room) => room.check(room.event('m.odd', bob, {})),
    allowed: (room) => room.check(room.event('m.odd', alice, {})),
  },
  {
    what: 'state needs 50 unless set',
    rule: '8 8 7 7 7 7 7 8',
    refused: (room) => room.check(room.event('m.room.name', carol, {}, { stateKey: '' })),
    allowed: (room) => room.check(room.event('m.room.name', bob, {}, { stateKey: '' })),
  },
  {
    what: 'state needs the default for state',
    rule: '8 8 7 7 7 7 7 8',
    refused: (room) => room.withLevels({ state_default: 51 }).check(room.event('m.x', bob, {}, { stateKey: '' })),
    allowed: (room) => room.withLevels({ state_default: 50 }).check(room.event('m.x', bob, {}, { stateKey: '' })),
  },
  {
    what: 'messages need the default for messages',
    rule: '8 8 7 7 7 7 7 8',
    refused: (room) => room.withLevels({ events_default: 1 }).check(room.event('m.x', carol, {})),
    allowed: (room) => room.withLevels({ events_default: 1, users_default: 1 }).check(room.event('m.x', carol, {})),
  },
  {
    what: 'without power levels the creator alone sets state',
    rule: '8 8 7 7 7 7 7 8',
    refused: (room) => {
      room.state.delete(power);
      return room.check(room.event('m.room.name', bob, {}, { stateKey: '' }));
    },
    allowed: (room) => {
      room.state.delete(power);
      return room.check(room.event('m.room.name', alice, {}, { stateKey: '' }));
    },
  },
  {
    what: 'state of a user is set by that user',
    rule: '9 9 8 8 8 8 8 9',
    refused: (room) => room.check(room.event('m.topic', bob, {}, { stateKey: alice })),
    allowed: (room) => room.check(room.event('m.topic', bob, {}, { stateKey: bob })),
  },
  ...scalar.map((name): Case => ({
    what: `${name} is an integer`,
    rule: '- - - - - 9.1 9.1 10.1',
    refused: (room) => room.check(room.powerLevels(alice, { [name]: '50' })),
    allowed: (room) => room.check(room.powerLevels(alice, { [name]: 50 })),
  })),
  ...['events', 'notifications'].flatMap((map): Case[] => [
    {
      what: `${map} is an object`,
      rule: '- - - - - 9.2 9.2 10.2',
      refused: (room) => room.check(room.powerLevels(alice, { [map]: [] })),
      allowed: (room) => room.check(room.powerLevels(alice, { [map]: {} })),
    },
    {
      what: `${map} has integers`,
      rule: '- - - - - 9.2 9.2 10.2',
      refused: (room) => room.check(room.powerLevels(alice, { [map]: { room: null } })),
      allowed: (room) => room.check(room.powerLevels(alice, { [map]: { room: 1 } })),
    },
  ]),
  {
    what: 'users is an object',
    rule: '10.1 10.1 9.1 9.1 9.1 9.3 9.3 10.3',
    refused: (room) => room.check(room.powerLevels(alice, { users: [] })),
    allowed: (room) => room.check(room.powerLevels(alice, room.users({ [carol]: 1 }))),
  },
  {
    what: 'users has user ids',
    rule: '10.1 10.1 9.1 9.1 9.1 9.3 9.3 10.3',
    refused: (room) => room.check(room.powerLevels(alice, room.users({ carol: 1 }))),
    allowed: (room) => room.check(room.powerLevels(alice, room.users({ [carol]: 1 }))),
  },
  {
    what: 'users has levels',
    rule: '10.1 10.1 9.1 9.1 9.1 9.3 9.3 10.3',
    refused: (room) => room.check(room.powerLevels(alice, room.users({ [carol]: 'one' }))),
    allowed: (room) => room.check(room.powerLevels(alice, room.users({ [carol]: 1 }))),
  },
  {
    what: 'users has levels as text in old versions only',
    rule: '- - - - - 9.3 9.3 10.3',
    refused: (room) => room.check(room.powerLevels(alice, room.users({ [carol]: '1' }))),
    allowed: (room) => room.check(room.powerLevels(alice, room.users({ [carol]: 1 }))),
  },
  {
    what: 'levels are text with an integer',
    rule: '10.1 10.1 9.1 9.1 9.1 - - -',
    refused: (room) => room.check(room.powerLevels(alice, room.users({ [carol]: '1.5' }))),
    allowed: (room) => room.check(room.powerLevels(alice, room.users({ [carol]: ' +0012 ' }))),
  },
  ...[alice, bob].map((creator): Case => ({
    what: `the level of ${creator === alice ? 'the creator' : 'an additional creator'} is not set`,
    rule: '- - - - - - - 10.4',
    refused: (room) => {
      const create = { ...room.create, content: { ...room.create.content, additional_creators: [bob] } };
      room.put(create);
      return room.check(room.powerLevels(alice, { users: { [creator]: 100 } }));
    },
    allowed: (room) => room.check(room.powerLevels(alice, { users: { [carol]: 100 } })),
  })),
  {
    what: 'the first power levels are free, later ones are not',
    rule: '10.7.1 10.7.1 9.7.1 9.7.1 9.7.1 9.9.1 9.9.1 10.10.1',
    refused: (room) => room.check(room.powerLevels(bob, room.users({ [carol]: 1000 }))),
    allowed: (room) => {
      room.state.delete(power);
      return room.check(room.event('m.room.power_levels', alice, { users: { [carol]: 1000 } }, { stateKey: '' }));
    },
  },
  ...scalar.flatMap((name): Case[] => [
    {
      what: `${name} above the sender is not changed`,
      rule: '10.3.1 10.3.1 9.3.1 9.3.1 9.3.1 9.5.1 9.5.1 10.6.1',
      refused: (room) => {
        room.withLevels({ [name]: 60, events: { 'm.room.power_levels': 0 } });
        return room.check(room.powerLevels(bob, { [name]: 40 }));
      },
      allowed: (room) => {
        room.withLevels({ [name]: 50, events: { 'm.room.power_levels': 0 } });
        return room.check(room.powerLevels(bob, { [name]: 40 }));
      },
    },
    {
      what: `${name} is not set above the sender`,
      rule: '10.3.2 10.3.2 9.3.2 9.3.2 9.3.2 9.5.2 9.5.2 10.6.2',
      refused: (room) => room.check(room.powerLevels(bob, { [name]: 51 })),
      allowed: (room) => room.check(room.powerLevels(bob, { [name]: 50 })),
    },
    {
      what: `${name} above the sender is not removed`,
      rule: '10.3.1 10.3.1 9.3.1 9.3.1 9.3.1 9.5.1 9.5.1 10.6.1',
      refused: (room) => {
        room.withLevels({ [name]: 60, events: { 'm.room.power_levels': 0 } });
        return room.check(room.powerLevels(bob, { [name]: undefined }));
      },
      allowed: (room) => {
        room.withLevels({ [name]: 60, events: { 'm.room.power_levels': 0 } });
        return room.check(room.powerLevels(bob, {}));
      },
    },
  ]),
  {
    what: 'event levels above the sender are not changed',
    rule: '10.4.1 10.4.1 9.4.1 9.4.1 9.4.1 9.6.1 9.6.1 10.7.1',
    refused: (room) => room.check(room.powerLevels(bob, { events: { 'm.odd': 50, 'm.high': 70 } })),
    allowed: (room) => room.check(room.powerLevels(alice, { events: { 'm.odd': 50, 'm.high': 70 } })),
  },
  {
    what: 'event levels above the sender are not removed',
    rule: '10.4.1 10.4.1 9.4.1 9.4.1 9.4.1 9.6.1 9.6.1 10.7.1',
    refused: (room) => room.check(room.powerLevels(bob, { events: {} })),
    allowed: (room) => room.check(room.powerLevels(bob, { events: { 'm.odd': 60, 'm.high': 70 } })),
  },
  {
    what: 'event levels are not set above the sender',
    rule: '10.5.1 10.5.1 9.5.1 9.5.1 9.5.1 9.7.1 9.7.1 10.8.1',
    refused: (room) => room.check(room.powerLevels(bob, { events: { 'm.odd': 60, 'm.high': 70, 'm.new': 51 } })),
    allowed: (room) => room.check(room.powerLevels(bob, { events: { 'm.odd': 60, 'm.high': 70, 'm.new': 50 } })),
  },
  {
    what: 'notification levels above the sender are not changed',
    rule: '- - 9.4.1 9.4.1 9.4.1 9.6.1 9.6.1 10.7.1',
    refused: (room) => room.check(room.powerLevels(bob, { notifications: { room: 50, high: 20 } })),
    allowed: (room) => room.check(room.powerLevels(bob, { notifications: { room: 20, high: 70 } })),
  },
  {
    what: 'notification levels are not set above the sender',
    rule: '- - 9.5.1 9.5.1 9.5.1 9.7.1 9.7.1 10.8.1',
    refused: (room) => room.check(room.powerLevels(bob, { notifications: { room: 51, high: 70 } })),
    allowed: (room) => room.check(room.powerLevels(bob, { notifications: { room: 50, high: 70, x: 50 } })),
  },
  {
    what: 'an equal is not demoted',
    rule: '10.6.1 10.6.1 9.6.1 9.6.1 9.6.1 9.8.1 9.8.1 10.9.1',
    refused: (room) => room.check(room.powerLevels(bob, room.users({ [eve]: 10 }))),
    allowed: (room) => room.check(room.powerLevels(bob, room.users({ [bob]: 10 }))),
  },
  {
    what: 'an equal is not removed',
    rule: '10.6.1 10.6.1 9.6.1 9.6.1 9.6.1 9.8.1 9.8.1 10.9.1',
    refused: (room) => room.check(room.powerLevels(bob, room.users({ [eve]: undefined }))),
    allowed: (room) => room.check(room.powerLevels(bob, room.users({ [bob]: undefined }))),
  },
  {
    what: 'nobody is raised above the sender',
    rule: '10.7.1 10.7.1 9.7.1 9.7.1 9.7.1 9.9.1 9.9.1 10.10.1',
    refused: (room) => room.check(room.powerLevels(bob, room.users({ [carol]: 51 }))),
    allowed: (room) => room.check(room.powerLevels(bob, room.users({ [carol]: 50 }))),
  },
  {
    what: 'nobody raises themselves',
    rule: '10.7.1 10.7.1 9.7.1 9.7.1 9.7.1 9.9.1 9.9.1 10.10.1',
    refused: (room) => room.check(room.powerLevels(bob, room.users({ [bob]: 51 }))),
    allowed: (room) => room.check(room.powerLevels(bob, room.users({ [bob]: 49 }))),
  },
  {
    what: 'events of other servers are redacted with the redact level',
    rule: '11.3 - - - - - - -',
    refused: (room) => room.check(room.event('m.room.redaction', carol, {}, { redacts: '$target:a.example' })),
    allowed: (room) => room.check(room.event('m.room.redaction', bob, {}, { redacts: '$target:b.example' })),
  },
  {
    what: 'events of the own server are redacted freely',
    rule: '11.3 - - - - - - -',
    refused: (room) => room.check(room.event('m.room.redaction', carol, {})),
    allowed: (room) => room.check(room.event('m.room.redaction', carol, {}, { redacts: '$target:b.example' })),
  },
];

describe.each(roomVersions)('auth rules of room version %s', (version) => {
  const column = columns.findIndex((versions) => versions.includes(version));
  const inForce = cases.map((row) => ({ row, rule: row.rule.split(' ')[column] })).filter(({ rule }) => rule !== '-');

  it.each(inForce)('$rule $row.what', ({ row, rule }) => {
    expect(row.refused(new Room(version))).toMatchObject({ allowed: false, rule });
    expect(row.allowed(new Room(version))).toEqual({ allowed: true });
  });
});

describe('auth rules that a version does not have', () => {
  it('leaves aliases to the power levels from version 6 on', () => {
    const room = new Room('6');
    expect(room.check(room.event('m.room.aliases', dave, {}, { stateKey: 'b.example' }))).toMatchObject({ rule: '5' });
    expect(room.check(room.event('m.room.aliases', bob, {}, { stateKey: 'b.example' }))).toEqual({ allowed: true });
  });

  it('leaves redactions to the power levels from version 3 on', () => {
    const room = new Room('3');
    const event = room.event('m.room.redaction', carol, {}, { redacts: '$target' });
    expect(room.check(event)).toEqual({ allowed: true });
  });

  it('does not look at notification levels before version 6', () => {
    const room = new Room('5');
    expect(room.check(room.powerLevels(bob, { notifications: { room: 1000 } }))).toEqual({ allowed: true });
  });

  it('does not ask for an authorizing signature before version 8', () => {
    const room = new Room('7');
    const event = room.membership(ivy, ivy, 'join', { join_authorised_via_users_server: bob });
    expect(checkAuthEvents(event, room.cite(power))).toEqual({ allowed: true });
  });

  it('cuts floats in versions 1 to 5', () => {
    const old = new Room('5').withLevels({ state_default: 40.9, users_default: -39.9 });
    old.withLevels(old.users({ [carol]: '+40 ' }));
    expect(old.check(old.event('m.room.name', carol, {}, { stateKey: '' }))).toEqual({ allowed: true });
    old.withLevels(old.users({ [carol]: 39.9 }));
    expect(old.check(old.event('m.room.name', carol, {}, { stateKey: '' }))).toMatchObject({ rule: '8' });
  });

  it('takes a level that it cannot read for a missing one', () => {
    const room = new Room('9').withLevels({ state_default: 'many', users: [] });
    expect(room.check(room.event('m.room.name', bob, {}, { stateKey: '' }))).toMatchObject({ rule: '7' });
    expect(room.check(room.event('m.room.name', bob, {}))).toEqual({ allowed: true });
    expect(room.check(room.powerLevels(alice, {}))).toMatchObject({ rule: '7' });
  });

  it('does not let values that nobody can read into the power levels of old rooms', () => {
    const room = new Room('9');
    expect(room.check(room.powerLevels(alice, { kick: 'many' }))).toMatchObject({ rule: '9.3.2' });
    expect(room.check(room.powerLevels(alice, { events: { 'm.x': {} } }))).toMatchObject({ rule: '9.5.1' });
    expect(room.check(room.powerLevels(alice, { events: [] }))).toMatchObject({ rule: '9.5.1' });
  });

  it('gives up on third-party invites with more signatures and keys than anybody needs', () => {
    const room = new Room('11');
    const keys = Array.from({ length: 64 }, (_, i) => ({
      public_key: SigningKey.fromSeed('1', Buffer.alloc(32, 10 + i)).publicKey,
    }));
    keys[63] = { public_key: key.publicKey };
    room.set('m.room.third_party_invite', 'token', { public_keys: keys }, bob);
    const invite = room.redeemed(bob, dave);
    expect(room.check(room.membership(bob, dave, 'invite', invite))).toEqual({ allowed: true });
    room.set('m.room.third_party_invite', 'token', { public_keys: [...keys, { public_key: 'more' }] }, bob);
    expect(room.check(room.membership(bob, dave, 'invite', invite))).toMatchObject({ rule: '4.4.1.8' });
  });

  it('takes no empty list for a signature', () => {
    const room = new Room('11');
    const event = room.membership(dave, dave, 'join', { join_authorised_via_users_server: bob });
    const signed = { ...event, pdu: { ...event.pdu, signatures: { 'a.example': {} } } };
    expect(checkAuthEvents(signed, room.cite(power, own))).toMatchObject({ rule: '4.2.1' });
    const odd = room.membership(dave, dave, 'join', { join_authorised_via_users_server: { a: 1 } });
    expect(checkAuthEvents(odd, room.cite(power), { signedBy: () => true })).toMatchObject({ rule: '4.2.1' });
  });

  it('does not take names from the prototype for levels', () => {
    const room = new Room('9');
    expect(room.check(room.event('constructor', bob, {}))).toEqual({ allowed: true });
    expect(room.check(room.event('toString', bob, {}, { stateKey: '__proto__' }))).toEqual({ allowed: true });
  });

  it('puts the creators of version 12 above every level', () => {
    const room = new Room('12').withLevels({ events: { 'm.x': Number.MAX_SAFE_INTEGER } });
    expect(room.check(room.event('m.x', alice, {}))).toEqual({ allowed: true });
    expect(room.check(room.event('m.x', bob, {}))).toMatchObject({ rule: '8' });
  });
});
