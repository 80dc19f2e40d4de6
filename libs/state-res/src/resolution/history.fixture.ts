import { buildEvent, type RoomEvent, roomVersionRules, type RoomVersionRules } from '@rookery/events';
import { authTypesFor } from '../auth/auth-types.js';
import { checkAuth } from '../auth/check-auth.js';
import { authStateOf } from '../auth/verdict.js';
import { stateKeyOf, type StateMap } from '../state-map.js';
import type { AuthLinks, StateResProvider } from './provider.js';
import { resolveState } from './resolve-state.js';

export const alice = '@alice:a.example';
export const bob = '@bob:b.example';
export const carol = '@carol:c.example';
export const mallory = '@mallory:m.example';
export type Content = Record<string, unknown>;

/** An event graph: every event knows the state after it. */
export class History implements StateResProvider {
  readonly rules: RoomVersionRules;
  readonly all = new Map<string, RoomEvent>();
  readonly rejected = new Set<string>();
  readonly stateAfter = new Map<string, StateMap>();
  readonly generations = new Map<string, number>();
  calls = 0;
  loaded = 0;
  create!: RoomEvent;
  private clock = 1_000;

  constructor(version: string) {
    this.rules = roomVersionRules(version) as RoomVersionRules;
  }

  /** A room of alice, open to all, with bob at 50; returns its last event. */
  static async open(version: string, levels: Content = {}): Promise<[History, RoomEvent]> {
    const history = new History(version);
    const room_version = history.rules.version;
    const content = history.rules.creatorIsSender ? { room_version } : { room_version, creator: alice };
    const create = await history.send([], alice, 'm.room.create', '', content);
    history.create = create;
    const joined = await history.member([create], alice, alice, 'join');
    const ranked = history.rules.privilegedCreators ? { [bob]: 50 } : { [alice]: 100, [bob]: 50 };
    const power = await history.levels([joined], alice, { users: ranked, ...levels });
    const rules = await history.send([power], alice, 'm.room.join_rules', '', { join_rule: 'public' });
    return [history, await history.member([rules], bob, bob, 'join')];
  }

  events(ids: readonly string[]): Promise<ReadonlyMap<string, RoomEvent>> {
    this.calls++;
    const found = new Map<string, RoomEvent>();
    for (const id of ids) {
      const event = this.all.get(id);
      if (event !== undefined) found.set(id, event);
    }
    this.loaded += found.size;
    return Promise.resolve(found);
  }

  isRejected(ids: readonly string[]): Promise<ReadonlySet<string>> {
    return Promise.resolve(new Set(ids.filter((id) => this.rejected.has(id))));
  }

  /** The same provider with an index of auth links and, unless told otherwise, generations. */
  indexed(withGenerations = true): StateResProvider {
    return {
      events: (ids) => this.events(ids),
      isRejected: (ids) => this.isRejected(ids),
      authLinks: (ids) => {
        this.calls++;
        const links = new Map<string, AuthLinks>();
        for (const id of ids) {
          const authEventIds = this.all.get(id)?.authEventIds;
          const generation = withGenerations ? this.generations.get(id) : undefined;
          if (authEventIds !== undefined) links.set(id, { authEventIds, generation });
        }
        return Promise.resolve(links);
      },
    };
  }

  async stateBefore(prev: readonly RoomEvent[]): Promise<StateMap> {
    return resolveState(
      prev.map((event) => this.stateAfter.get(event.eventId) as StateMap),
      this,
      this.rules,
    );
  }

  lookup(state: StateMap): ReturnType<typeof authStateOf> {
    return authStateOf([...state.values()].map((id) => this.all.get(id) as RoomEvent));
  }

  async send(
    prev: readonly RoomEvent[],
    sender: string,
    type: string,
    stateKey: string,
    content: Content,
    options: { state?: StateMap; ts?: number; ignoreAuth?: boolean } = {},
  ): Promise<RoomEvent> {
    const before = options.state ?? (await this.stateBefore(prev));
    const wanted = authTypesFor({ type, stateKey, sender, content }, this.rules);
    const authEventIds = wanted.map(([t, k]) => before.get(stateKeyOf(t, k))).filter((id) => id !== undefined);
    const isCreate = type === 'm.room.create';
    const event = buildEvent(
      {
        type,
        stateKey,
        sender,
        content,
        roomId: isCreate ? (this.rules.createEventImplied ? undefined : '!room:a.example') : this.create.roomId,
        prevEventIds: prev.map((event) => event.eventId),
        authEventIds,
        originServerTs: options.ts ?? this.clock++,
        depth: 1 + Math.max(0, ...prev.map((event) => event.depth)),
        eventId: `$${this.all.size}:${sender.split(':')[1]}`,
      },
      this.rules,
    );
    if (options.ignoreAuth !== true) {
      const verdict = checkAuth(event, this.lookup(before));
      if (!verdict.allowed) throw new Error(`${type} by ${sender}: ${verdict.rule} ${verdict.reason}`);
    }
    this.all.set(event.eventId, event);
    this.stateAfter.set(event.eventId, new Map(before).set(stateKeyOf(type, stateKey), event.eventId));
    const generation = Math.max(-1, ...authEventIds.map((id) => this.generations.get(id) as number)) + 1;
    this.generations.set(event.eventId, generation);
    return event;
  }

  member(prev: readonly RoomEvent[], sender: string, target: string, membership: string, extra: Content = {}) {
    return this.send(prev, sender, 'm.room.member', target, { membership, ...extra });
  }

  levels(prev: readonly RoomEvent[], sender: string, content: Content, ts?: number) {
    return this.send(prev, sender, 'm.room.power_levels', '', content, ts === undefined ? {} : { ts });
  }

  topic(prev: readonly RoomEvent[], sender: string, topic: string) {
    return this.send(prev, sender, 'm.room.topic', '', { topic });
  }

  /** The event that counts after these. */
  async winner(prev: readonly RoomEvent[], type: string, stateKey = ''): Promise<RoomEvent | undefined> {
    const id = (await this.stateBefore(prev)).get(stateKeyOf(type, stateKey));
    return id === undefined ? undefined : this.all.get(id);
  }
}
