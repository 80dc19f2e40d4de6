import { type CrashClient, isAway } from './client.js';
import { pick } from '../support/random.js';

/** What was asked of the server, and what it answered before it was killed. */
export interface Operation {
  readonly kind: 'send' | 'state' | 'redact' | 'join' | 'leave';
  readonly client: CrashClient;
  readonly roomId: string;
  /** Names this request in the content of its event. */
  readonly nonce: string;
  readonly path: string;
  readonly body: object;
  /** The event that a redaction is about. */
  readonly target?: string;
  readonly startedMs: number;
  /** Absent: not acknowledged. */
  endedMs?: number;
  eventId?: string;
}

/** A room that the load knows of. */
export interface LoadRoom {
  readonly roomId: string;
  /** Never leaves. */
  readonly creator: CrashClient;
  /** What its creation and the members that were asked in make of it: users who are surely joined. */
  readonly members: Set<CrashClient>;
  /** Users of whom nobody knows whether they are in, because a request was cut off. */
  readonly unsure: Set<CrashClient>;
}

/** Everything that was asked for so far, over all lives of the server. */
export class Journal {
  readonly operations: Operation[] = [];
  readonly rooms = new Map<string, LoadRoom>();
  /** Names of rooms whose creation was not acknowledged. */
  readonly doubtfulRooms = new Map<string, CrashClient>();
  readonly redacted = new Set<string>();
  #nonces = 0;

  nonce(): string {
    this.#nonces += 1;
    return `n${this.#nonces}`;
  }

  /** A room as it is just after its creation was acknowledged. */
  addRoom(roomId: string, creator: CrashClient): LoadRoom {
    const room = { roomId, creator, members: new Set([creator]), unsure: new Set<CrashClient>() };
    this.rooms.set(roomId, room);
    return room;
  }
}

/** The answer was cut off: the server is gone. */
class Gone extends Error {}

/** Users at work until the server is gone. Sends, state, redactions, joins, leaves, new rooms, all at once. */
export class Load {
  #goesOn = true;
  #isOnSeveral = false;
  /** Who has asked for something in which room and got no answer. */
  readonly #unanswered = new Set<string>();

  constructor(
    private readonly journal: Journal,
    private readonly clients: readonly CrashClient[],
    private readonly random: () => number,
    private readonly maxRooms: number,
  ) {}

  /** Users go on where a process was lost, since others answer, until {@link end}. @param pauseMs between two requests of one */
  async runOnOthers(pauseMs: number): Promise<void> {
    this.#isOnSeveral = true;
    await Promise.all(
      this.clients.map(async (client) => {
        while (this.#goesOn) {
          try {
            await this.#step(client);
          } catch (error) {
            if (!(error instanceof Gone)) throw error;
          }
          await new Promise((resolve) => setTimeout(resolve, pauseMs));
        }
      }),
    );
  }

  /** What was begun ends by itself. */
  end(): void {
    this.#goesOn = false;
  }

  /** Resolves when every user has lost the server. @throws Error when the server refuses what it should not */
  async run(): Promise<void> {
    await Promise.all(
      this.clients.map(async (client) => {
        try {
          for (;;) await this.#step(client);
        } catch (error) {
          if (!(error instanceof Gone)) throw error;
        }
      }),
    );
  }

  async #step(client: CrashClient): Promise<void> {
    const rooms = [...this.journal.rooms.values()];
    const mine = rooms.filter((room) => room.members.has(client));
    const dice = this.random();
    const room = pick(mine, this.random);
    if (dice < 0.04 && rooms.length < this.maxRooms) return this.#create(client);
    if (dice < 0.16) {
      const other = pick(
        // What was cut off may still come to pass, after what is asked for now, or is asked for again: by somebody who is in the room.
        rooms.filter(
          (each) =>
            each.creator !== client &&
            !each.unsure.has(client) &&
            !this.#unanswered.has(`${client.userId} ${each.roomId}`),
        ),
        this.random,
      );
      if (other) return this.#membership(client, other);
    }
    if (!room) return this.#create(client);
    if (dice < 0.3) return this.#state(client, room);
    if (dice < 0.38) {
      const own = this.journal.operations.findLast(
        (each) =>
          each.kind === 'send' &&
          each.client === client &&
          each.eventId !== undefined &&
          !this.journal.redacted.has(each.eventId) &&
          each.roomId === room.roomId,
      );
      if (own?.eventId !== undefined) return this.#redact(client, room, own.eventId);
    }
    const nonce = this.journal.nonce();
    await this.#do('PUT', {
      kind: 'send',
      client,
      roomId: room.roomId,
      nonce,
      path: `/rooms/${room.roomId}/send/m.room.message/${nonce}`,
      body: { msgtype: 'm.text', body: 'x'.repeat(Math.floor(this.random() * 400)), nonce },
      startedMs: performance.now(),
    });
  }

  async #state(client: CrashClient, room: LoadRoom): Promise<void> {
    const nonce = this.journal.nonce();
    const key = `key${Math.floor(this.random() * 4)}`;
    await this.#do('PUT', {
      kind: 'state',
      client,
      roomId: room.roomId,
      nonce,
      path: `/rooms/${room.roomId}/state/org.example.load/${key}`,
      body: { nonce },
      startedMs: performance.now(),
    });
  }

  async #redact(client: CrashClient, room: LoadRoom, target: string): Promise<void> {
    const nonce = this.journal.nonce();
    this.journal.redacted.add(target);
    await this.#do('PUT', {
      kind: 'redact',
      client,
      roomId: room.roomId,
      nonce,
      path: `/rooms/${room.roomId}/redact/${target}/${nonce}`,
      body: { reason: nonce },
      target,
      startedMs: performance.now(),
    });
  }

  async #membership(client: CrashClient, room: LoadRoom): Promise<void> {
    const kind = room.members.has(client) && this.random() < 0.5 ? 'leave' : 'join';
    room.members.delete(client);
    room.unsure.add(client);
    await this.#do('POST', {
      kind,
      client,
      roomId: room.roomId,
      nonce: this.journal.nonce(),
      path: `/rooms/${room.roomId}/${kind}`,
      body: {},
      startedMs: performance.now(),
    });
    room.unsure.delete(client);
    if (kind === 'join') room.members.add(client);
  }

  async #create(client: CrashClient): Promise<void> {
    const name = this.journal.nonce();
    this.journal.doubtfulRooms.set(name, client);
    const version = this.random() < 0.3 ? { room_version: '10' } : {};
    const { room_id } = await this.#ask<{ room_id: string }>(client, 'POST', '/createRoom', roomBody(name, version));
    this.journal.doubtfulRooms.delete(name);
    this.journal.addRoom(room_id, client);
  }

  async #do(method: string, operation: Operation): Promise<void> {
    this.journal.operations.push(operation);
    const { client, roomId, path, body } = operation;
    const { event_id: eventId } = await this.#ask<{ event_id?: string }>(client, method, path, body).catch(
      (error: unknown) => {
        this.#unanswered.add(`${client.userId} ${roomId}`);
        throw error;
      },
    );
    operation.endedMs = performance.now();
    if (eventId !== undefined) operation.eventId = eventId;
  }

  async #ask<T>(client: CrashClient, method: string, path: string, body: object): Promise<T> {
    const answer = await client.request<T>(method, path, body).catch((error: unknown) => {
      throw new Gone('the connection broke', { cause: error });
    });
    if (this.#isOnSeveral && isAway(answer)) throw new Gone('the server asks to come again');
    if (answer.status !== 200) {
      throw new Error(`${method} ${path} by ${client.userId}: ${answer.status} ${JSON.stringify(answer.body)}`);
    }
    return answer.body;
  }
}

/** What rooms of this test are made with: everybody may send state. */
export const roomBody = (name: string, more: object = {}): object => ({
  preset: 'public_chat',
  name,
  power_level_content_override: { state_default: 0 },
  ...more,
});
