import type { CrashClient, WireEvent } from './client.js';

interface SyncRoom {
  readonly timeline: { readonly events: WireEvent[]; readonly limited: boolean; readonly prev_batch: string };
}

interface Sync {
  readonly next_batch: string;
  readonly rooms?: { readonly join?: Record<string, SyncRoom> };
}

interface Page {
  readonly chunk: WireEvent[];
  readonly end?: string;
}

const filter = encodeURIComponent(JSON.stringify({ room: { timeline: { limit: 50 } } }));

/** A client that syncs over all lives of the server and keeps what it is told, in order. */
export class Watcher {
  /** Ids of timeline events by room, as they came; gaps are filled at their place. */
  readonly heard = new Map<string, string[]>();
  #since: string | undefined;

  constructor(readonly client: CrashClient) {}

  /** Syncs until the connection breaks. */
  async untilGone(): Promise<void> {
    try {
      for (;;) await this.#step(1_000);
    } catch (error) {
      // A broken connection is a TypeError of `fetch`, or a cut-off body.
      if (!(error instanceof TypeError || error instanceof SyntaxError)) throw error;
    }
  }

  /** Syncs until there is nothing more to be told. */
  async catchUp(): Promise<void> {
    while (await this.#step(0));
  }

  async #step(timeoutMs: number): Promise<boolean> {
    const since = this.#since;
    const query = since === undefined ? '' : `&since=${since}`;
    const sync = await this.client.ok<Sync>('GET', `/sync?timeout=${timeoutMs}&filter=${filter}${query}`);
    const rooms = Object.entries(sync.rooms?.join ?? {});
    const news: [string, string[]][] = [];
    for (const [roomId, { timeline }] of rooms) {
      const ids = timeline.events.map((event) => event.event_id);
      if (timeline.limited && since !== undefined)
        ids.unshift(...(await this.#gap(roomId, timeline.prev_batch, since)));
      news.push([roomId, ids]);
    }
    // A gap that could not be filled is asked for again: the token moves when everything is there.
    this.#since = sync.next_batch;
    for (const [roomId, ids] of news) this.heard.set(roomId, [...(this.heard.get(roomId) ?? []), ...ids]);
    return rooms.length > 0;
  }

  async #gap(roomId: string, from: string, to: string): Promise<string[]> {
    const ids: string[] = [];
    for (let next: string | undefined = from; next !== undefined;) {
      const page: Page = await this.client.ok('GET', `/rooms/${roomId}/messages?dir=b&limit=500&from=${next}&to=${to}`);
      ids.push(...page.chunk.map((event) => event.event_id));
      next = page.chunk.length === 0 ? undefined : page.end;
    }
    return ids.reverse();
  }
}
