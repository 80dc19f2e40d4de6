import { Controller, Get } from '@nestjs/common';
import { Access, HttpReply } from '@rookery/http';
import { Config } from '@rookery/platform';

const page = (serverName: string): string => `<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>${serverName}</title>
<style>body{font:1.1rem/1.6 system-ui,sans-serif;max-width:34rem;margin:15vh auto;padding:0 1.5rem;color:#24323d;background:#fbfaf7}
h1{font-size:1.6rem}@media(prefers-color-scheme:dark){body{color:#e6e4de;background:#1c242b}}</style></head>
<body><h1>It works</h1><p>This is the Matrix homeserver <b>${serverName}</b>.
To use it, enter its address as the homeserver in a Matrix client.</p></body></html>`;

const escaped = (text: string): string => text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);

/** What a person sees who opens the server's address in a browser. */
@Controller()
export class FrontPageController {
  readonly #webClient: string | undefined;
  readonly #page: string;

  constructor(config: Config) {
    this.#webClient = config.get('web_client_location');
    this.#page = page(escaped(config.serverName));
  }

  /** GET /, and the address of this page where a proxy passes on the paths of Matrix only */
  @Get(['/', '/_matrix/static'])
  @Access({ auth: 'none' })
  frontPage(): HttpReply {
    return this.#webClient === undefined ? HttpReply.html(200, this.#page) : HttpReply.redirect(this.#webClient);
  }
}
