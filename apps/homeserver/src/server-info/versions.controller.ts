import { Controller, Get } from '@nestjs/common';
import { Access, HttpReply, Who } from '@rookery/http';
import { Config, type Requester } from '@rookery/platform';
import { ExperimentalFeatures } from '@rookery/users';

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
  ...Array.from({ length: 19 }, (_, index) => `v1.${index + 1}`),
];

/** Features without a switch, by the names under which clients look for them. */
const always: Readonly<Record<string, boolean>> = {
  'org.matrix.label_based_filtering': true,
  'org.matrix.e2e_cross_signing': true,
  'org.matrix.msc2432': true,
  'uk.half-shot.msc2666.query_mutual_rooms.stable': true,
  'org.matrix.msc2285.stable': true,
  'org.matrix.msc3827.stable': true,
  'org.matrix.msc3440.stable': true,
  'org.matrix.msc3771': true,
  'fi.mau.msc2659.stable': true,
  'org.matrix.msc3981': true,
  'uk.tcpip.msc4133.stable': true,
  'org.matrix.msc4222': true,
  'org.matrix.msc4380.stable': true,
};

/** Features that are as the settings say. */
function bySettings(config: Config): Record<string, boolean> {
  const encrypted = config.get('encryption_enabled_by_default_for_room_type');
  const canDelay =
    config.get('max_event_delay_duration') !== undefined &&
    config.get('experimental_features.msc4140_max_delayed_events_per_user') > 0;
  return {
    'fi.mau.msc2815': config.get('experimental_features.msc2815_enabled'),
    'org.matrix.msc3026.busy_presence': config.get('experimental_features.msc3026_enabled'),
    'org.matrix.msc3391': config.get('experimental_features.msc3391_enabled'),
    'org.matrix.msc3882': config.get('login_via_existing_session.enabled'),
    'org.matrix.msc3773': config.get('experimental_features.msc3773_enabled'),
    'org.matrix.msc3874': config.get('experimental_features.msc3874_enabled'),
    'org.matrix.msc3881': config.get('experimental_features.msc3881_enabled'),
    'org.matrix.msc3912': config.get('experimental_features.msc3912_enabled'),
    'org.matrix.msc4028': config.get('experimental_features.msc4028_push_encrypted_events'),
    'org.matrix.msc4069': config.get('experimental_features.msc4069_profile_inhibit_propagation'),
    'org.matrix.msc4108':
      config.get('experimental_features.msc4108_enabled') ||
      config.get('experimental_features.msc4108_delegation_endpoint') !== undefined,
    'org.matrix.msc4140': canDelay,
    'org.matrix.msc4143': config.get('experimental_features.msc4143_enabled'),
    'org.matrix.msc4306': config.get('experimental_features.msc4306_enabled'),
    'org.matrix.msc4354': config.get('experimental_features.msc4354_enabled'),
    'org.matrix.msc4155': config.get('experimental_features.msc4155_enabled'),
    'io.element.msc4512': config.get('experimental_features.msc4512_enabled'),
    'uk.timedout.msc4491.create_room_invite_reasons': config.get('experimental_features.msc4491_enabled'),
    'uk.tcpip.msc4133': config.get('experimental_features.msc4133_enabled'),
    'com.beeper.msc4169': config.get('experimental_features.msc4169_enabled'),
    'com.beeper.msc4446': config.get('experimental_features.msc4446_enabled'),
    'org.matrix.simplified_msc3575': config.get('experimental_features.msc3575_enabled'),
    'io.element.e2ee_forced.public': encrypted === 'all',
    'io.element.e2ee_forced.private': encrypted !== 'off',
    'io.element.e2ee_forced.trusted_private': encrypted !== 'off',
  };
}

/** Says which releases and which unstable features this server knows. */
@Controller()
export class VersionsController {
  readonly #unstableFeatures: Readonly<Record<string, boolean>>;

  constructor(
    config: Config,
    private readonly features: ExperimentalFeatures,
  ) {
    this.#unstableFeatures = { ...always, ...bySettings(config) };
  }

  /** GET /_matrix/client/versions */
  @Get('/_matrix/client/versions')
  @Access({ auth: 'optional', guests: true, locked: true, expired: true, anyProcess: true })
  async versions(@Who() requester: Requester | undefined): Promise<HttpReply> {
    const own = requester === undefined ? {} : await this.#featuresOf(requester.userId);
    const body = { versions: specVersions, unstable_features: { ...this.#unstableFeatures, ...own } };
    const cache: Record<string, string> = requester
      ? {}
      : { 'cache-control': 'public, max-age=600, s-maxage=3600, stale-while-revalidate=600' };
    return HttpReply.json(200, body, { vary: 'Authorization', ...cache });
  }

  async #featuresOf(userId: string): Promise<Record<string, boolean>> {
    return {
      'org.matrix.msc3881': await this.features.isEnabled(userId, 'msc3881'),
      'org.matrix.simplified_msc3575': await this.features.isEnabled(userId, 'msc3575'),
    };
  }
}
