import { Injectable } from '@nestjs/common';
import { type WebClient, WebMounts } from '@rookery/http';
import { ModuleDispatcher, webPathFilter } from '@rookery/module-host';
import { rememberAddress } from './inbound.js';

/** Serves the paths that modules registered, beside the server's own. */
@Injectable()
export class WebResources {
  readonly #mounted = new Set<string>();
  #serves = webPathFilter([]);

  constructor(
    private readonly mounts: WebMounts,
    private readonly dispatcher: ModuleDispatcher,
  ) {}

  /** Takes over paths that are new since the last call. Those that are gone are the server's again, which has none there. */
  refresh(): void {
    this.#serves = webPathFilter(this.dispatcher.summary().flatMap(({ paths }) => paths));
    for (const prefix of this.dispatcher.webPrefixes) {
      if (this.#mounted.has(prefix)) continue;
      const answer = (request: Request, client: WebClient): Promise<Response> => {
        rememberAddress(request, client.ip);
        return this.dispatcher.answerWeb(request, client);
      };
      this.mounts.add(prefix, answer, (path) => this.#serves(path));
      this.#mounted.add(prefix);
    }
  }
}
