import { AwayError, type CrashClient, type WireEvent } from './client.js';

interface SyncRoom {
  readonly timeline: { readonly events: WireEvent[]; readonly limited: boolean; readonly prev_batch: string };
}

interface Sync {
  readonly next_batch: string;
  readonly to_device?: { readonly events: readonly { readonly type: string; readonly content: { n?: number } }[] };
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
  /** Numbers of messages to its device, as they came. */
  readonly messages: number[] = [];
  #since: string | undefined;
  #hasEnded = false;

  constructor(readonly client: CrashClient) {}

  /** Syncs until {@link end}, whichever processes are lost meanwhile. */
  async follow(): Promise<void> {
    while (!this.#hasEnded) {
      try {
        await this.#step(1_000);
      } catch (error) {
        if (!(error instanceof TypeError || error instanceof SyntaxError || error instanceof AwayError)) throw error;
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    }
    this.#hasEnded = false;
  }

  /** What was begun ends by itself. */
  end(): void {
    this.#hasEnded = true;
  }

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
    const messages = (sync.to_device?.events ?? []).flatMap(({ content }) => content.n ?? []);
    this.messages.push(...messages);
    return rooms.length > 0 || messages.length > 0;
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
