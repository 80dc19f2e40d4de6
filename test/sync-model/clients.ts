import type { TestUser } from '@rookery/testing';
import { stateKeyOf } from '@rookery/state-res';
import type { TrueEvent, TrueState, Truth } from './truth.js';

const slidingPath = '/_matrix/client/unstable/org.matrix.simplified_msc3575/sync';

/** An event on the wire. */
interface Wire {
  readonly event_id: string;
  readonly type: string;
  readonly sender: string;
  readonly state_key?: string;
  readonly content: Record<string, unknown>;
}

interface Counts {
  readonly notification_count: number;
  readonly highlight_count: number;
}

interface DeviceLists {
  readonly changed?: string[];
  readonly left?: string[];
}

interface Summary {
  readonly 'm.heroes'?: string[];
  readonly 'm.joined_member_count'?: number;
  readonly 'm.invited_member_count'?: number;
}

interface SyncRoom {
  readonly state?: { events: Wire[] };
  readonly state_after?: { events: Wire[] };
  readonly timeline: { events: Wire[]; limited: boolean; prev_batch: string };
  readonly summary?: Summary;
  readonly unread_notifications?: Counts;
}

interface Sync {
  readonly next_batch: string;
  readonly to_device?: { events: Wire[] };
  readonly device_lists?: DeviceLists;
  readonly rooms?: {
    readonly join?: Record<string, SyncRoom>;
    readonly leave?: Record<string, SyncRoom>;
    readonly invite?: Record<string, { invite_state: { events: Wire[] } }>;
    readonly knock?: Record<string, { knock_state: { events: Wire[] } }>;
  };
}

interface SlidingRoom extends Partial<Counts> {
  readonly initial?: boolean;
  readonly name?: string;
  readonly heroes?: { user_id: string }[];
  readonly joined_count?: number;
  readonly invited_count?: number;
  readonly required_state?: Wire[];
  readonly timeline?: Wire[];
  readonly limited?: boolean;
  readonly unstable_expanded_timeline?: boolean;
  readonly invite_state?: Wire[];
}

interface Sliding {
  readonly pos: string;
  readonly lists: Record<string, { count: number; ops: { room_ids: string[] }[] }>;
  readonly rooms: Record<string, SlidingRoom>;
  readonly extensions: {
    readonly to_device?: { next_batch: string; events: Wire[] };
    readonly e2ee?: { device_lists?: DeviceLists };
  };
}

/** What a difference is told as; the run ends with it. */
export class Difference extends Error {}

/** What a client knows of a room that its user is in. */
interface KnownRoom {
  readonly state: Map<string, string>;
  /** Up to where the client has been told what happened. */
  upTo: number;
  limit: number;
  joined: number | undefined;
  invited: number | undefined;
  heroes: readonly string[] | undefined;
  unread: string | undefined;
  /** Who spoke in the timelines that were shown. */
  readonly speakers: Set<string>;
}

type Section = 'invite' | 'knock';

/** What both kinds of clients keep, and what they are held against. */
export abstract class Client {
  rooms = new Map<string, KnownRoom>();
  sections = new Map<string, Section>();
  /** Numbers of the to-device messages that arrived. */
  readonly messages: number[] = [];
  /** Whose keys the client watches; unknown before the first answer. */
  watched: Set<string> | undefined;

  constructor(
    readonly user: TestUser,
    readonly name: string,
  ) {}

  get userId(): string {
    return this.user.userId;
  }

  abstract sync(truth: Truth, lost: boolean): Promise<void>;
  /** Starts anew, as after its data was lost. */
  abstract reset(): void;
  abstract get isLazy(): boolean;

  /** The last answer, for whoever looks into a difference. */
  protected answer: unknown;

  protected fail(what: string, details: object): never {
    const answer = JSON.stringify(this.answer).slice(0, 20_000);
    throw new Difference(`${this.name}: ${what}: ${JSON.stringify(details, null, 1)}\n${answer}`);
  }

  protected newRoom(limit: number): KnownRoom {
    const [joined, invited, heroes, unread] = [undefined, undefined, undefined, undefined];
    return { state: new Map(), upTo: 0, limit, joined, invited, heroes, unread, speakers: new Set() };
  }

  protected apply(room: KnownRoom, events: readonly Wire[] = []): void {
    for (const { type, state_key: key, event_id: id } of events)
      if (key !== undefined) room.state.set(stateKeyOf(type, key), id);
  }

  /** A timeline holds the last of what may be seen since, and says so where that is not all. */
  protected checkTimeline(
    truth: Truth,
    roomId: string,
    timeline: { readonly ids: readonly string[]; readonly limited: boolean },
    range: { readonly after: number; readonly upTo: number; readonly fresh: boolean; readonly limit: number },
  ): void {
    const happened = truth.between(roomId, range.after, range.upTo);
    const visible = truth.visible(this.userId, happened);
    const { ids, limited } = timeline;
    const wanted = ids.length === 0 ? [] : visible.slice(-ids.length);
    const details = { roomId, ...range, limited, ids, visible: visible.map(describe) };
    if (ids.join() !== wanted.map(({ id }) => id).join())
      this.fail('a timeline is not the end of what happened', details);
    if (ids.length > range.limit) this.fail('a timeline is longer than was asked for', details);
    if (limited || range.fresh) {
      const gaps = (truth.gaps.get(roomId) ?? []).some((gap) => gap > range.after && gap <= range.upTo);
      const isAll = ids.length === happened.length;
      if (isAll && !gaps && !range.fresh) this.fail('a gap is told where there is none', details);
    } else if (ids.length < visible.length) this.fail('events are missing, and no gap is told', details);
  }

  protected checkSpeakers(truth: Truth, roomId: string, room: KnownRoom, timeline: readonly Wire[]): void {
    const current = truth.states.get(roomId);
    for (const { sender } of timeline) {
      room.speakers.add(sender);
      if (current?.memberships.has(sender) && !room.state.has(stateKeyOf('m.room.member', sender)))
        this.fail('the member event of a sender is missing', { roomId, sender });
    }
  }

  protected watch(truth: Truth, lists: DeviceLists | undefined): void {
    if (this.watched === undefined) this.watched = truth.inSight(this.userId);
    else {
      for (const userId of lists?.changed ?? []) this.watched.add(userId);
      for (const userId of lists?.left ?? []) {
        if (lists?.changed?.includes(userId)) this.fail('somebody both changed and left', { userId });
        this.watched.delete(userId);
      }
    }
    this.watched.delete(this.userId);
  }

  /** @param isAnew the client has not said up to where it had got them: what it had last may come again */
  protected receive(events: readonly Wire[] = [], isAnew: boolean): void {
    for (const { content } of events) {
      const number = Number(content['n']);
      if (!isAnew || !this.messages.includes(number)) this.messages.push(number);
    }
  }

  /** Compares all that the client knows with what is. */
  check(truth: Truth, sent: readonly number[], unreadOf: (roomId: string) => string): void {
    const own = truth.memberships.get(this.userId)!;
    for (const [roomId, { membership }] of own) {
      const isKnown = this.rooms.has(roomId);
      if ((membership === 'join') !== isKnown && this.tellsAll)
        this.fail('a room is where it should not be', { roomId, membership, isKnown });
      // The state of a room in which nobody of this server is any more does not move.
      const inState = truth.isFollowed(roomId) ? truth.states.get(roomId)?.memberships.get(this.userId) : undefined;
      if (inState !== undefined && inState !== membership)
        this.fail('the membership is not that of the current state', { roomId, membership, inState });
      const section = this.sections.get(roomId);
      const isWaiting = membership === 'invite' || membership === 'knock';
      const isHidden = membership === 'invite' && this.#hasIgnored(truth, own.get(roomId)!.sender);
      if (section !== (isWaiting ? membership : undefined) && !isHidden && this.tellsAll)
        this.fail('an invite or knock is not as it is', { roomId, membership, section });
    }
    for (const [roomId, room] of this.rooms) {
      if (!this.isCurrent(roomId)) continue;
      const current = truth.states.get(roomId);
      if (current === undefined) this.fail('a room does not exist', { roomId });
      this.#checkState(truth, roomId, room, current);
      this.#checkSummary(truth, roomId, room, current);
      // What was counted before its sender was ignored still counts, and nothing tells of it but the next thing that happens.
      const unread = truth.everIgnored.has(this.userId) ? room.unread : unreadOf(roomId);
      if (room.unread !== unread) this.fail('unread counts differ', { roomId, known: room.unread, unread });
    }
    const watched = [...(this.watched ?? [])].sort();
    const inSight = [...truth.inSight(this.userId)].sort();
    if (watched.join() !== inSight.join()) this.fail('device lists differ', { watched, inSight });
    if (this.messages.join() !== sent.join()) this.fail('to-device messages differ', { got: this.messages, sent });
  }

  /** Whether every room is told of at once. */
  protected get tellsAll(): boolean {
    return true;
  }

  protected isCurrent(_roomId: string): boolean {
    return true;
  }

  /** Whether the client takes state from timelines too. */
  protected get appliesTimelines(): boolean {
    return false;
  }

  #hasIgnored(truth: Truth, sender: string): boolean {
    return truth.everIgnored.get(this.userId)?.has(sender) === true;
  }

  #checkState(truth: Truth, roomId: string, room: KnownRoom, current: TrueState): void {
    for (const [key, eventId] of room.state) {
      const wanted = current.ids.get(key);
      if (wanted === eventId) continue;
      // What resolution takes away, and what it puts aside for something older, answers of this kind have no words for.
      if (wanted === undefined) continue;
      const [known, real] = [truth.byId.get(eventId), truth.byId.get(wanted)];
      if (this.appliesTimelines && real === undefined) continue;
      this.fail('state differs', {
        roomId,
        key,
        known: known && describe(known),
        real: real && describe(real),
        eventId,
        wanted,
      });
    }
    for (const key of current.ids.keys()) {
      if (room.state.has(key)) continue;
      const isMember = key.startsWith(stateKeyOf('m.room.member', ''));
      if (!isMember || !this.isLazy || key === stateKeyOf('m.room.member', this.userId))
        this.fail('state is missing', { roomId, key, wanted: describe(truth.byId.get(current.ids.get(key)!)) });
    }
  }

  #checkSummary(truth: Truth, roomId: string, room: KnownRoom, current: TrueState): void {
    const { joined, invited } = current;
    if (room.joined !== joined || room.invited !== invited)
      this.fail('numbers of members differ', { roomId, known: [room.joined, room.invited], joined, invited });
    if (truth.isNamed(roomId)) return;
    const wanted = current.heroes(this.userId).sort();
    const known = [...(room.heroes ?? [])].sort();
    if (wanted.join() !== known.join()) this.fail('heroes differ', { roomId, known, wanted });
    if (this.heroesInState)
      for (const hero of wanted)
        if (!room.state.has(stateKeyOf('m.room.member', hero))) this.fail('a hero is not known', { roomId, hero });
  }

  protected get heroesInState(): boolean {
    return true;
  }
}

const describe = (event: TrueEvent | undefined): string =>
  event === undefined
    ? 'unknown'
    : `${event.stream} ${event.type}${event.stateKey === undefined ? '' : `|${event.stateKey}`} by ${event.sender} (${event.visibility}) ${event.id}`;

/** How a client asks for `/sync`. */
export interface ClassicOptions {
  readonly stateAfter: boolean;
  readonly lazy: boolean;
  readonly redundant: boolean;
  readonly limit: number;
}

/** Follows `/sync` by the book. */
export class ClassicClient extends Client {
  since: string | undefined;
  /** Up to where the last answer went. */
  #head = 0;

  constructor(
    user: TestUser,
    readonly options: ClassicOptions,
  ) {
    super(user, `${user.userId} /sync ${JSON.stringify(options)}`);
  }

  get isLazy(): boolean {
    return this.options.lazy;
  }

  protected override get appliesTimelines(): boolean {
    return !this.options.stateAfter;
  }

  reset(): void {
    this.since = undefined;
    this.#head = 0;
    this.rooms = new Map();
    this.sections = new Map();
    this.watched = undefined;
  }

  async sync(truth: Truth, lost: boolean): Promise<void> {
    const { lazy, redundant, limit, stateAfter } = this.options;
    const state = { lazy_load_members: lazy, include_redundant_members: redundant };
    const filter = encodeURIComponent(JSON.stringify({ room: { timeline: { limit }, state } }));
    const since = this.since === undefined ? '' : `&since=${this.since}`;
    const query = `timeout=0&filter=${filter}${since}${stateAfter ? '&use_state_after=true' : ''}`;
    const { status, body } = await this.user.request<Sync>('GET', `/sync?${query}`);
    this.answer = body;
    if (status !== 200) this.fail('a sync failed', { status, body });
    if (lost) return;
    const isAnew = this.since === undefined;
    this.since = body.next_batch;
    this.watch(truth, body.device_lists);
    this.receive(body.to_device?.events, isAnew);
    const { join = {}, invite = {}, knock = {}, leave = {} } = body.rooms ?? {};
    const head = truth.head;
    const told = new Set([join, invite, knock, leave].flatMap((section) => Object.keys(section)));
    for (const [roomId, answer] of Object.entries(leave)) this.#leave(truth, roomId, answer);
    for (const [roomId, { invite_state: stripped }] of Object.entries(invite))
      this.#wait(roomId, 'invite', stripped.events);
    for (const [roomId, { knock_state: stripped }] of Object.entries(knock))
      this.#wait(roomId, 'knock', stripped.events);
    for (const [roomId, answer] of Object.entries(join)) this.#join(truth, roomId, answer);
    for (const [roomId, room] of this.rooms) {
      if (told.has(roomId)) continue;
      const range = { after: room.upTo, upTo: truth.head, fresh: false, limit };
      this.checkTimeline(truth, roomId, { ids: [], limited: false }, range);
      room.upTo = truth.head;
    }
    this.#head = head;
  }

  #wait(roomId: string, section: Section, stripped: readonly Wire[]): void {
    this.rooms.delete(roomId);
    this.sections.set(roomId, section);
    const isOwn = ({ type, state_key: key }: Wire): boolean => type === 'm.room.member' && key === this.userId;
    const member = stripped.find(isOwn);
    if (member?.content['membership'] !== section)
      this.fail('stripped state lacks the own member', { roomId, stripped });
  }

  #leave(truth: Truth, roomId: string, answer: SyncRoom): void {
    const known = this.rooms.get(roomId);
    const room = known ?? this.newRoom(this.options.limit);
    const own = truth.toldMembership(this.userId, roomId);
    const ids = answer.timeline.events.map((event) => event.event_id);
    this.#applyRoom(room, answer);
    const member = room.state.get(stateKeyOf('m.room.member', this.userId));
    // What resolution took back without putting another in its place has no event that says so.
    const isUndone = own !== undefined && truth.byId.get(own.eventId)?.memberships.get(this.userId) !== own.membership;
    if (member !== own?.eventId && !isUndone)
      this.fail('the event with which the user went is missing', { roomId, member, own, answer });
    const isOutside = known === undefined && !truth.hasBeenIn(this.userId, roomId, this.#head);
    if (isOutside) {
      const strange = [...room.state.keys()].filter((key) => key !== stateKeyOf('m.room.member', this.userId));
      const isHidden = (id: string): boolean => {
        const event = truth.byId.get(id);
        return event !== undefined && !truth.maySee(this.userId, event);
      };
      if (ids.some(isHidden)) this.fail('a stranger is shown what is hidden', { roomId, answer });
      if (strange.length > 0) this.fail('a stranger is told of state', { roomId, strange });
    } else if (own !== undefined) {
      const range = {
        after: known?.upTo ?? 0,
        upTo: own.stream,
        fresh: known === undefined,
        limit: this.options.limit,
      };
      this.checkTimeline(truth, roomId, { ids, limited: answer.timeline.limited }, range);
    }
    this.rooms.delete(roomId);
    this.sections.delete(roomId);
  }

  #join(truth: Truth, roomId: string, answer: SyncRoom): void {
    const { limit } = this.options;
    const known = this.rooms.get(roomId);
    const isFresh = known === undefined || (answer.timeline.limited && this.#cameBack(truth, roomId, known));
    const room = isFresh ? this.newRoom(limit) : known;
    this.rooms.set(roomId, room);
    this.sections.delete(roomId);
    const { events, limited } = answer.timeline;
    const range = { after: room.upTo, upTo: truth.head, fresh: isFresh, limit };
    this.checkTimeline(truth, roomId, { ids: events.map((event) => event.event_id), limited }, range);
    this.#applyRoom(room, answer);
    this.checkSpeakers(truth, roomId, room, events);
    room.upTo = truth.head;
    const { summary = {}, unread_notifications: unread } = answer;
    room.joined = summary['m.joined_member_count'] ?? room.joined;
    room.invited = summary['m.invited_member_count'] ?? room.invited;
    room.heroes = summary['m.heroes'] ?? room.heroes;
    room.unread = unread && `${unread.notification_count}/${unread.highlight_count}`;
  }

  /** Whether the user went and came back since the last sync: then everything is told anew. */
  #cameBack(truth: Truth, roomId: string, room: KnownRoom): boolean {
    return truth
      .between(roomId, room.upTo, truth.head)
      .some(
        ({ type, stateKey, memberships }) =>
          type === 'm.room.member' && stateKey === this.userId && memberships.get(this.userId) !== 'join',
      );
  }

  #applyRoom(room: KnownRoom, answer: SyncRoom): void {
    const { stateAfter } = this.options;
    this.apply(room, (stateAfter ? answer.state_after : answer.state)?.events);
    if (!stateAfter) this.apply(room, answer.timeline.events);
  }
}

/** How a client asks for sliding sync. */
export interface SlidingOptions {
  readonly lazy: boolean;
  readonly limit: number;
  /** Rooms in the window. */
  readonly window: number;
}

/** Follows sliding sync by the book. */
export class SlidingClient extends Client {
  pos: string | undefined;
  listed: readonly string[] = [];
  #toDevice: string | undefined;

  constructor(
    user: TestUser,
    readonly options: SlidingOptions,
  ) {
    super(user, `${user.userId} sliding ${JSON.stringify(options)}`);
  }

  get isLazy(): boolean {
    return this.options.lazy;
  }

  protected override get heroesInState(): boolean {
    return false;
  }

  protected override get tellsAll(): boolean {
    return this.options.window >= 50;
  }

  protected override isCurrent(roomId: string): boolean {
    return this.listed.includes(roomId);
  }

  reset(): void {
    this.pos = undefined;
    this.listed = [];
    this.rooms = new Map();
    this.sections = new Map();
    this.watched = undefined;
  }

  async sync(truth: Truth, lost: boolean): Promise<void> {
    const { lazy, limit, window } = this.options;
    const state = lazy
      ? [
          ['*', '*'],
          ['m.room.member', '$LAZY'],
          ['m.room.member', '$ME'],
        ]
      : [['*', '*']];
    const request = {
      lists: { all: { ranges: [[0, window - 1]], timeline_limit: limit, required_state: state } },
      extensions: {
        e2ee: { enabled: true },
        to_device: { enabled: true, ...(this.#toDevice !== undefined && { since: this.#toDevice }) },
      },
    };
    const query = `?timeout=0${this.pos === undefined ? '' : `&pos=${this.pos}`}`;
    const { status, body } = await this.user.request<Sliding>('POST', slidingPath + query, request);
    this.answer = body;
    if (status !== 200) this.fail('a sliding sync failed', { status, body });
    if (lost) return;
    this.pos = body.pos;
    this.listed = body.lists['all']?.ops.flatMap((op) => op.room_ids) ?? [];
    this.watch(truth, body.extensions.e2ee?.device_lists);
    this.receive(body.extensions.to_device?.events, false);
    this.#toDevice = body.extensions.to_device?.next_batch ?? this.#toDevice;
    const own = truth.memberships.get(this.userId)!;
    for (const [roomId, answer] of Object.entries(body.rooms)) {
      const membership = own.get(roomId)?.membership;
      if (membership === 'join') this.#join(truth, roomId, answer);
      else this.#other(truth, roomId, answer);
    }
    for (const roomId of this.listed) {
      const room = this.rooms.get(roomId);
      if (roomId in body.rooms || room === undefined) continue;
      const range = { after: room.upTo, upTo: truth.head, fresh: false, limit };
      this.checkTimeline(truth, roomId, { ids: [], limited: false }, range);
      room.upTo = truth.head;
    }
    // Who left is not listed any more, and nothing needs be said about it.
    for (const roomId of this.rooms.keys()) if (own.get(roomId)?.membership !== 'join') this.rooms.delete(roomId);
    for (const roomId of this.sections.keys())
      if (own.get(roomId)?.membership !== this.sections.get(roomId)) this.sections.delete(roomId);
  }

  #other(truth: Truth, roomId: string, answer: SlidingRoom): void {
    const own = truth.toldMembership(this.userId, roomId);
    this.rooms.delete(roomId);
    this.sections.delete(roomId);
    if (own?.membership === 'invite' || own?.membership === 'knock') {
      this.sections.set(roomId, own.membership);
      const member = answer.invite_state?.find(
        ({ type, state_key: key }) => type === 'm.room.member' && key === this.userId,
      );
      if (member?.content['membership'] !== own.membership)
        this.fail('stripped state lacks the own member', { roomId, answer });
      return;
    }
    const known = [...(answer.required_state ?? []), ...(answer.timeline ?? [])];
    for (const { event_id: id } of answer.timeline ?? []) {
      const event = truth.byId.get(id);
      if (event !== undefined && !truth.maySee(this.userId, event))
        this.fail('a stranger is shown what is hidden', { roomId, id });
    }
    if (!known.some(({ event_id: id }) => id === own?.eventId))
      this.fail('the event with which the user went is missing', { roomId, own, answer });
    const hasBeenIn = truth.hasBeenIn(this.userId, roomId);
    const strange = (answer.required_state ?? []).filter(({ state_key: key }) => key !== this.userId);
    if (!hasBeenIn && strange.length > 0) this.fail('a stranger is told of state', { roomId, strange });
  }

  #join(truth: Truth, roomId: string, answer: SlidingRoom): void {
    const { limit } = this.options;
    const known = this.rooms.get(roomId);
    const isAnew = known === undefined || answer.initial === true;
    if (known === undefined && answer.initial !== true)
      this.fail('a room is new and not told as such', { roomId, answer });
    const room = isAnew ? this.newRoom(limit) : known;
    this.rooms.set(roomId, room);
    this.sections.delete(roomId);
    const timeline = answer.timeline ?? [];
    const isWhole = isAnew || answer.unstable_expanded_timeline === true;
    const range = { after: isWhole ? 0 : room.upTo, upTo: truth.head, fresh: isWhole, limit };
    const ids = timeline.map((event) => event.event_id);
    this.checkTimeline(truth, roomId, { ids, limited: answer.limited === true }, range);
    this.apply(room, answer.required_state);
    this.checkSpeakers(truth, roomId, room, timeline);
    room.upTo = truth.head;
    room.joined = answer.joined_count ?? room.joined;
    room.invited = answer.invited_count ?? room.invited;
    room.heroes = answer.heroes?.map((hero) => hero.user_id) ?? room.heroes;
    if (answer.notification_count !== undefined)
      room.unread = `${answer.notification_count}/${answer.highlight_count ?? 0}`;
  }
}
