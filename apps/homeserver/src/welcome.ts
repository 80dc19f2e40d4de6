import type { BoundAddress } from '@rookery/http';
import { relative } from 'node:path';

/** What the first screen tells. */
export interface Welcome {
  readonly version: string;
  readonly serverName: string;
  readonly addresses: readonly BoundAddress[];
  readonly configFile: string | undefined;
  readonly publicBaseUrl: string | undefined;
  /** Whether there is no account yet. */
  readonly isEmpty: boolean;
  readonly modules: readonly string[];
}

/** The address of a listener, as a person would type it. */
export function urlOf(address: BoundAddress): string {
  if (address.path !== undefined) return `unix:${address.path}`;
  const host =
    address.host === undefined ? 'localhost' : address.host.includes(':') ? `[${address.host}]` : address.host;
  return `${address.tls ? 'https' : 'http'}://${host}:${address.port}`;
}

const shownFile = (configFile: string | undefined): string =>
  configFile === undefined ? 'homeserver.yaml' : relative(process.cwd(), configFile) || '.';

/** What an operator types to make the first account: in a clone of the sources no command has a name of its own. */
export const firstAdministratorCommand = (configFile: string | undefined, program = import.meta.url): string =>
  `${program.includes('/node_modules/') ? '' : 'npx '}rookery register-user --config ${shownFile(configFile)} --admin`;

/** One screen: where the server listens, how to make the first administrator, how to point a client at it. */
export function welcomeScreen(welcome: Welcome): string {
  const urls = welcome.addresses.map(urlOf);
  const base = welcome.publicBaseUrl ?? urls.find((url) => url.startsWith('http')) ?? '';
  const lines = [
    `Rookery ${welcome.version} is running as ${welcome.serverName}`,
    '',
    `  Listening   ${urls.join('\n              ')}`,
  ];
  if (welcome.configFile !== undefined) lines.push(`  Settings    ${shownFile(welcome.configFile)}`);
  if (welcome.modules.length > 0) lines.push(`  Modules     ${welcome.modules.join(', ')}`);
  if (welcome.isEmpty)
    lines.push('', '  Make the first administrator:', `    ${firstAdministratorCommand(welcome.configFile)}`);
  lines.push('', `  Point a Matrix client at ${base} as its homeserver.`, '  Stop with Ctrl+C.', '');
  return lines.join('\n');
}
