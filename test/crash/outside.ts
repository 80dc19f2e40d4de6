import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type MailSink, startMailSink } from '@rookery/testing';
import { stringify } from 'yaml';

const wide = { per_second: 100_000, burst_count: 100_000 };

/** What a server sends elsewhere, as those who get it see it: a push gateway, an application service, a mail server. */
export class Outside {
  /** How often the gateway was told of an event. */
  readonly pushes = new Map<string, number>();
  /** The events of each transaction as the application service got them, each time that it did. */
  readonly transactions = new Map<string, string[][]>();

  private constructor(
    private readonly server: Server,
    private readonly folder: string,
    readonly mails: MailSink,
  ) {
    server.on('request', (req, res) => {
      const chunks: Buffer[] = [];
      req.on('data', (chunk: Buffer) => chunks.push(chunk));
      req.on('end', () => {
        this.#take(req.url ?? '', JSON.parse(Buffer.concat(chunks).toString() || '{}') as Record<string, unknown>);
        res.writeHead(200, { 'content-type': 'application/json' }).end('{}');
      });
    });
  }

  static async open(): Promise<Outside> {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return new Outside(server, await mkdtemp(join(tmpdir(), 'rookery-outside-')), await startMailSink());
  }

  /** Settings of a server that sends here. */
  async settings(): Promise<object> {
    const file = join(this.folder, 'service.yaml');
    const registration = {
      ...{ id: 'everything', url: this.#url, as_token: 'as', hs_token: 'hs', sender_localpart: 'service' },
      ...{ rate_limited: false, namespaces: { users: [], aliases: [], rooms: [{ regex: '!.*', exclusive: false }] } },
    };
    await writeFile(file, stringify(registration));
    return {
      app_service_config_files: [file],
      email: this.mails.settings,
      ip_range_blacklist: [],
      rc_3pid_validation: wide,
    };
  }

  /** What a client asks for that wants its notifications here. */
  get pusher(): object {
    return {
      ...{ kind: 'http', app_id: 'org.example.crash', pushkey: 'key', app_display_name: 'a', device_display_name: 'd' },
      ...{ lang: 'en', data: { url: `${this.#url}/_matrix/push/v1/notify`, format: 'event_id_only' } },
    };
  }

  async close(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
    await this.mails.stop();
    await rm(this.folder, { recursive: true, force: true });
  }

  get #url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  #take(url: string, body: Record<string, unknown>): void {
    const transaction = /\/transactions\/([^?]+)/.exec(url)?.[1];
    if (transaction !== undefined) {
      const ids = (body['events'] as { event_id: string }[]).map((event) => event.event_id);
      this.transactions.set(transaction, [...(this.transactions.get(transaction) ?? []), ids]);
      return;
    }
    const { event_id: eventId } = (body['notification'] ?? {}) as { event_id?: string };
    if (eventId !== undefined) this.pushes.set(eventId, (this.pushes.get(eventId) ?? 0) + 1);
  }
}
