import { ProcessUser } from '../e2e/federation/server-processes.js';
import type { FederatingProcess } from '../e2e/federation/server-processes.js';

type Json = Record<string, unknown>;

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** How many of what were done, and which answers were no 2xx. */
export interface Tally {
  readonly done: Map<string, number>;
  readonly refused: Map<string, number>;
}

/**
 * People who talk, read, come and go on a server and on a second one that shares its rooms, at a steady pace: what is
 * measured is whether the server grows, not how fast it is.
 */
export class Load {
  readonly tally: Tally = { done: new Map(), refused: new Map() };
  readonly #here: ProcessUser[] = [];
  readonly #there: ProcessUser[] = [];
  readonly #rooms: string[] = [];
  #on = true;
  #count = 0;

  constructor(
    private readonly server: FederatingProcess,
    private readonly peer: FederatingProcess,
    private readonly people = 24,
    private readonly rooms = 12,
  ) {}

  /** Accounts, and rooms in which people of both servers are. */
  async prepare(): Promise<void> {
    for (let n = 0; n < this.people; n++) {
      this.#here.push(await ProcessUser.register(this.server, `here${n}`));
      if (n % 4 === 0) this.#there.push(await ProcessUser.register(this.peer, `there${n}`));
    }
    for (let n = 0; n < this.rooms; n++) {
      const { room_id: roomId } = await this.#here[n % this.people]!.call<{ room_id: string }>('POST', '/createRoom', {
        preset: 'public_chat',
        name: `Room ${n}`,
      });
      this.#rooms.push(roomId);
      for (let k = 1; k < 8; k++) await this.#here[(n + k) % this.people]!.call('POST', `/join/${roomId}`, {});
      const via = `?via=${encodeURIComponent(this.server.name)}`;
      await this.#there[n % this.#there.length]!.call('POST', `/join/${roomId}${via}`, {});
    }
  }

  /** Works until it is told to stop. */
  async run(): Promise<void> {
    const loops = [
      ...this.#here.map((user) => this.#syncs(user)),
      ...this.#there.slice(0, 3).map((user) => this.#syncs(user)),
      this.#every(120, () => this.#says(this.#one(this.#here))),
      this.#every(400, () => this.#says(this.#one(this.#there))),
      this.#every(700, () => this.#reads(this.#one(this.#here))),
      this.#every(900, () => this.#types(this.#one(this.#here))),
      this.#every(1_500, () => this.#comesAndGoes(this.#one(this.#here))),
      this.#every(2_000, () => this.#asks(this.#one(this.#here))),
      this.#every(3_000, () => this.#uploads(this.#one(this.#here))),
      this.#every(5_000, () => this.#signsInAndOut()),
      this.#every(7_000, () => this.#renames(this.#one(this.#here))),
    ];
    await Promise.all(loops);
  }
  stop(): void {
    this.#on = false;
  }

  /** The next of them, in turn: the same for every run. */
  #one<T>(list: readonly T[]): T {
    this.#count += 1;
    return list[(this.#count * 7) % list.length]!;
  }

  async #every(ms: number, work: () => Promise<void>): Promise<void> {
    while (this.#on) {
      await work();
      await sleep(ms);
    }
  }

  async #does(what: string, user: ProcessUser, method: string, path: string, body?: object): Promise<Json | undefined> {
    const answer = await user.try(method, path, body);
    const counts = answer.ok ? this.tally.done : this.tally.refused;
    counts.set(what, (counts.get(what) ?? 0) + 1);
    return answer.ok ? answer.body : undefined;
  }

  async #syncs(user: ProcessUser): Promise<void> {
    let since = '';
    while (this.#on) {
      const answer = await this.#does('sync', user, 'GET', `/sync?timeout=20000${since && `&since=${since}`}`);
      since = (answer?.['next_batch'] as string | undefined) ?? '';
      await sleep(50);
    }
  }

  async #says(user: ProcessUser): Promise<void> {
    const roomId = this.#one(this.#rooms);
    this.#count += 1;
    const path = `/rooms/${roomId}/send/m.room.message/soak${this.#count}`;
    const sent = await user.try<{ event_id: string; errcode?: string }>('PUT', path, {
      msgtype: 'm.text',
      body: `This is what was said as number ${this.#count}`,
    });
    // Who is not in the room just now is refused; that is no failure.
    const counts = sent.ok || sent.body?.errcode === 'M_FORBIDDEN' ? this.tally.done : this.tally.refused;
    counts.set('send', (counts.get('send') ?? 0) + 1);
    if (sent.ok && this.#count % 5 === 0) {
      await this.#does('receipt', user, 'POST', `/rooms/${roomId}/receipt/m.read/${sent.body?.event_id}`, {});
    }
    if (sent.ok && this.#count % 17 === 0) {
      await this.#does('redact', user, 'PUT', `/rooms/${roomId}/redact/${sent.body?.event_id}/r${this.#count}`, {});
    }
  }

  async #reads(user: ProcessUser): Promise<void> {
    const { joined_rooms: joined } = await user
      .call<{ joined_rooms: string[] }>('GET', '/joined_rooms')
      .catch(() => ({ joined_rooms: [] }));
    if (joined.length === 0) return;
    const roomId = this.#one(joined);
    await this.#does('messages', user, 'GET', `/rooms/${roomId}/messages?dir=b&limit=50`);
    await this.#does('state', user, 'GET', `/rooms/${roomId}/state`);
  }

  async #types(user: ProcessUser): Promise<void> {
    const me = encodeURIComponent(user.userId);
    await this.#does('presence', user, 'PUT', `/presence/${me}/status`, { presence: 'online' });
    await this.#does('account data', user, 'PUT', `/user/${me}/account_data/org.example.soak`, { n: this.#count });
    const to = this.#one(this.#here);
    await this.#does('to-device', user, 'PUT', `/sendToDevice/org.example.note/t${this.#count}`, {
      messages: { [to.userId]: { '*': { n: this.#count } } },
    });
  }

  async #comesAndGoes(user: ProcessUser): Promise<void> {
    const roomId = this.#one(this.#rooms);
    await user.try('POST', `/rooms/${roomId}/leave`, {});
    await this.#does('join', user, 'POST', `/join/${roomId}`, {});
  }

  async #asks(user: ProcessUser): Promise<void> {
    await this.#does('search', user, 'POST', '/search', {
      search_categories: { room_events: { search_term: 'number', filter: { limit: 10 } } },
    });
    await this.#does('directory', user, 'POST', '/user_directory/search', { search_term: 'here1' });
    await this.#does('public rooms', user, 'POST', '/publicRooms', { limit: 10 });
    await this.#does('keys', user, 'POST', '/keys/query', { device_keys: { [this.#one(this.#there).userId]: [] } });
  }

  async #uploads(user: ProcessUser): Promise<void> {
    const bytes = new Uint8Array(50_000).fill(this.#count % 251);
    const ok = await user.upload(bytes).catch(() => false);
    const counts = ok ? this.tally.done : this.tally.refused;
    counts.set('upload', (counts.get('upload') ?? 0) + 1);
  }

  async #signsInAndOut(): Promise<void> {
    this.#count += 1;
    const user = await ProcessUser.register(this.server, `passing${this.#count}`);
    await this.#does('first sync', user, 'GET', '/sync');
    await this.#does('logout', user, 'POST', '/logout', {});
  }

  async #renames(user: ProcessUser): Promise<void> {
    const path = `/profile/${encodeURIComponent(user.userId)}/displayname`;
    await this.#does('rename', user, 'PUT', path, { displayname: `Name ${this.#count}` });
  }
}
