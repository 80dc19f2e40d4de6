import { Controller, Get } from '@nestjs/common';
import { Access, HttpReply, Who } from '@rookery/http';
import { Config, type Requester } from '@rookery/platform';

/** Releases of the specification whose client API we serve. @spec client-server-api#api-versions */
export const specVersions: readonly string[] = [
  'r0.0.1',
  'r0.1.0',
  'r0.2.0',
  'r0.3.0',
  'r0.4.0',
  'r0.5.0',
  'r0.6.0',
  'r0.6.1',
  ...Array.from({ length: 12 }, (_, index) => `v1.${index + 1}`),
];

/** Says which releases and which unstable features this server knows. */
@Controller()
export class VersionsController {
  readonly #unstableFeatures: Readonly<Record<string, boolean>>;

  constructor(config: Config) {
    const encrypted = config.get('encryption_enabled_by_default_for_room_type');
    this.#unstableFeatures = {
      'org.matrix.label_based_filtering': true,
      'org.matrix.msc2285.stable': true,
      'org.matrix.msc3440.stable': true,
      'uk.tcpip.msc4133.stable': true,
      'org.matrix.msc4222': true,
      'io.element.e2ee_forced.public': encrypted === 'all',
      'io.element.e2ee_forced.private': encrypted !== 'off',
      'io.element.e2ee_forced.trusted_private': encrypted !== 'off',
    };
  }

  /** GET /_matrix/client/versions */
  @Get('/_matrix/client/versions')
  @Access({ auth: 'optional', guests: true, locked: true, expired: true })
  versions(@Who() requester: Requester | undefined): HttpReply {
    const body = { versions: specVersions, unstable_features: this.#unstableFeatures };
    const cache: Record<string, string> = requester
      ? {}
      : { 'cache-control': 'public, max-age=600, s-maxage=3600, stale-while-revalidate=600' };
    return HttpReply.json(200, body, { vary: 'Authorization', ...cache });
  }
}
