import { type CrashClient, inParallel, type WireEvent } from './client.js';
import type { Journal, LoadRoom, Operation } from './load.js';
import type { Watcher } from './watcher.js';

interface Page {
  readonly chunk: WireEvent[];
  readonly end?: string;
}

/** What was found out about one room: its timeline in the order that the server gives. */
interface KnownRoom {
  readonly order: WireEvent[];
  readonly places: Map<string, number>;
}

/** Looks at everything that a server gives after it was killed, and says what is wrong. */
export class Audit {
  readonly #known = new Map<string, KnownRoom>();
  readonly #probes: Operation[] = [];
  #checked = 0;
  /** Everything that is not as it must be. */
  readonly problems: string[] = [];

  constructor(private readonly journal: Journal) {}

  /** After a restart: repeats what was not acknowledged, tries every room, and compares with what was acknowledged. */
  async afterCrash(): Promise<void> {
    await this.#retry();
    await this.#findDoubtfulRooms();
    await this.#settleMembers();
    await inParallel(this.journal.rooms.values(), async (room) => {
      await this.#probe(room);
      await this.#readNews(room);
      await this.#compareState(room);
    });
    this.#compareAcknowledged();
    this.#checked = this.journal.operations.length;
  }

  /** At the end: reads every room from its beginning and holds everything against it. */
  async everything(): Promise<void> {
    await inParallel(this.journal.rooms.values(), async (room) => {
      const forwards: string[] = [];
      for (let from = ''; ;) {
        const page: Page = await room.creator.ok('GET', `/rooms/${room.roomId}/messages?dir=f&limit=500${from}`);
        forwards.push(...page.chunk.map((event) => event.event_id));
        if (page.end === undefined || page.chunk.length === 0) break;
        from = `&from=${page.end}`;
      }
      const order = this.#known.get(room.roomId)?.order.map((event) => event.event_id) ?? [];
      if (forwards.join() !== order.join()) this.#report(`${room.roomId} reads otherwise from its beginning`);
    });
    this.#compareCounts();
    this.#compareOrder();
    await this.#compareRedactions();
    await inParallel(this.journal.operations.filter((each) => hasTransaction(each)).slice(-200), (each) =>
      this.#again(each),
    );
  }

  /** Whoever has followed a room from some event on has heard all that came since, once and in order. */
  compareHeard(watcher: Watcher, roomId: string): void {
    const heard = watcher.heard.get(roomId) ?? [];
    const timeline = this.timeline(roomId);
    const since = timeline.slice(timeline.indexOf(heard[0] ?? ''));
    if (heard.join() === since.join()) return;
    const places = new Map(heard.map((eventId, place) => [eventId, place]));
    const missing = since.filter((eventId) => !places.has(eventId));
    const { userId } = watcher.client;
    this.#report(
      `${userId} heard ${heard.length} events of ${roomId}, ${places.size} different ones, where there are ${since.length}; ` +
        (missing.length > 0 ? `not ${missing.join(', ')}` : 'not in their order'),
    );
  }

  /** The timeline of a room as it was read. */
  timeline(roomId: string): string[] {
    return (this.#known.get(roomId)?.order ?? []).map((event) => event.event_id);
  }

  #report(problem: string): void {
    this.problems.push(problem);
  }

  /** What was not acknowledged is sent once more with the same transaction id. */
  async #retry(): Promise<void> {
    const open = this.journal.operations.filter((each) => hasTransaction(each) && each.eventId === undefined);
    await inParallel(open, async (each) => {
      const { event_id } = await each.client.ok<{ event_id: string }>('PUT', each.path, each.body);
      each.eventId = event_id;
      each.endedMs = performance.now();
    });
  }

  async #again(each: Operation): Promise<void> {
    const { event_id } = await each.client.ok<{ event_id: string }>('PUT', each.path, each.body);
    if (event_id !== each.eventId) this.#report(`${each.nonce} was applied again`);
  }

  /** A room that was being made is there as a whole, or not at all. */
  async #findDoubtfulRooms(): Promise<void> {
    const doubtful = [...this.journal.doubtfulRooms];
    const creators = new Set(doubtful.map(([, creator]) => creator));
    for (const creator of creators) {
      const { joined_rooms } = await creator.ok<{ joined_rooms: string[] }>('GET', '/joined_rooms');
      for (const roomId of joined_rooms.filter((each) => !this.journal.rooms.has(each))) {
        const state = await creator.ok<WireEvent[]>('GET', `/rooms/${roomId}/state`);
        const types = new Set(state.map((event) => event.type));
        for (const type of ['create', 'member', 'power_levels', 'join_rules', 'history_visibility', 'name']) {
          if (!types.has(`m.room.${type}`)) this.#report(`${roomId} was made without its ${type}`);
        }
        const name = state.find((event) => event.type === 'm.room.name')?.content['name'];
        if (!doubtful.some(([each]) => each === name)) this.#report(`${roomId} (${String(name)}) came from nowhere`);
        this.journal.addRoom(roomId, creator);
      }
    }
    this.journal.doubtfulRooms.clear();
  }

  /** Members are those whose joins were acknowledged; of the others the server decides. */
  async #settleMembers(): Promise<void> {
    await inParallel(this.journal.rooms.values(), async (room) => {
      const path = `/rooms/${room.roomId}/joined_members`;
      const { joined } = await room.creator.ok<{ joined: Record<string, object> }>('GET', path);
      const wanted = [...room.members].map((client) => client.userId);
      const unsure = new Map([...room.unsure].map((client) => [client.userId, client]));
      for (const userId of wanted) if (!(userId in joined)) this.#report(`${userId} is gone from ${room.roomId}`);
      for (const userId of Object.keys(joined)) {
        const client = unsure.get(userId);
        if (client) room.members.add(client);
        else if (!wanted.includes(userId)) this.#report(`${userId} is in ${room.roomId} without having joined`);
      }
      room.unsure.clear();
    });
  }

  /** Sends once in a room: none may be wedged. */
  async #probe(room: LoadRoom): Promise<void> {
    const nonce = this.journal.nonce();
    const path = `/rooms/${room.roomId}/send/m.room.message/${nonce}`;
    const body = { msgtype: 'm.text', body: 'still here', nonce };
    const startedMs = performance.now();
    const { event_id } = await room.creator.ok<{ event_id: string }>('PUT', path, body);
    const { creator: client, roomId } = room;
    const endedMs = performance.now();
    this.#probes.push({ kind: 'send', client, roomId, nonce, path, body, startedMs, endedMs, eventId: event_id });
  }

  /** Reads backwards until what is known already. */
  async #readNews(room: LoadRoom): Promise<void> {
    const known = this.#known.get(room.roomId) ?? { order: [], places: new Map<string, number>() };
    this.#known.set(room.roomId, known);
    const last = known.order.at(-1)?.event_id;
    const news: WireEvent[] = [];
    let met = false;
    for (let from = ''; !met;) {
      const page: Page = await room.creator.ok('GET', `/rooms/${room.roomId}/messages?dir=b&limit=200${from}`);
      for (const event of page.chunk) {
        if (event.event_id === last) met = true;
        if (met) break;
        news.push(event);
      }
      if (page.end === undefined || page.chunk.length === 0) break;
      from = `&from=${page.end}`;
    }
    if (last !== undefined && !met) this.#report(`${room.roomId} has lost ${last}`);
    for (const event of news.reverse()) {
      if (known.places.has(event.event_id)) this.#report(`${event.event_id} moved in ${room.roomId}`);
      known.places.set(event.event_id, known.order.length);
      known.order.push(event);
    }
  }

  /** The current state is what the timeline makes of it: these rooms have no forks. */
  async #compareState(room: LoadRoom): Promise<void> {
    const replayed = new Map<string, string>();
    for (const event of this.#known.get(room.roomId)?.order ?? []) {
      if (event.state_key !== undefined) replayed.set(`${event.type}|${event.state_key}`, event.event_id);
    }
    const state = await room.creator.ok<WireEvent[]>('GET', `/rooms/${room.roomId}/state`);
    const current = new Map(state.map((event) => [`${event.type}|${event.state_key}`, event.event_id]));
    for (const key of new Set([...replayed.keys(), ...current.keys()])) {
      if (replayed.get(key) !== current.get(key))
        this.#report(`${key} of ${room.roomId} is not what the timeline says`);
    }
  }

  #compareAcknowledged(): void {
    for (const each of this.journal.operations.slice(this.#checked)) {
      if (each.eventId === undefined) continue;
      if (!this.#known.get(each.roomId)?.places.has(each.eventId)) this.#report(`${each.kind} ${each.nonce} is lost`);
    }
  }

  /** Each request made one event, however often it was sent. */
  #compareCounts(): void {
    const operations = [...this.journal.operations, ...this.#probes];
    for (const [roomId, { order }] of this.#known) {
      const count = (kind: Operation['kind']): number =>
        operations.filter((each) => each.kind === kind && each.roomId === roomId).length;
      const found = (type: string): number => order.filter((event) => event.type === type).length;
      for (const [kind, type] of [
        ['send', 'm.room.message'],
        ['redact', 'm.room.redaction'],
      ] as const) {
        if (found(type) !== count(kind)) this.#report(`${roomId}: ${count(kind)} × ${kind} made ${found(type)} events`);
      }
      const nonces = order.flatMap((event) => (event.type === 'org.example.load' ? [event.content['nonce']] : []));
      if (new Set(nonces).size !== nonces.length) this.#report(`${roomId}: a state change was applied twice`);
    }
  }

  /** What was acknowledged before something else was asked for lies before it. */
  #compareOrder(): void {
    const byEvent = new Map([...this.journal.operations, ...this.#probes].map((each) => [each.eventId, each]));
    for (const [roomId, { order }] of this.#known) {
      let latestStart = -Infinity;
      for (const event of order) {
        const operation = byEvent.get(event.event_id);
        if (operation?.endedMs === undefined) continue;
        if (operation.endedMs < latestStart) this.#report(`${roomId}: ${operation.nonce} lies too late`);
        latestStart = Math.max(latestStart, operation.startedMs);
      }
    }
  }

  async #compareRedactions(): Promise<void> {
    const redactions = this.journal.operations.filter((each) => each.kind === 'redact').slice(-100);
    await inParallel(redactions, async ({ client, roomId, target, eventId }) => {
      const reader: CrashClient = this.journal.rooms.get(roomId)?.creator ?? client;
      const event = await reader.ok<WireEvent>('GET', `/rooms/${roomId}/event/${target}`);
      const because = event.unsigned?.['redacted_because'] as WireEvent | undefined;
      if (Object.keys(event.content).length > 0) this.#report(`${target} still says something`);
      if (because?.event_id !== eventId) this.#report(`${target} was redacted by ${because?.event_id}, not ${eventId}`);
    });
  }
}

const hasTransaction = (operation: Operation): boolean => operation.kind === 'send' || operation.kind === 'redact';
