import { Controller, Get } from '@nestjs/common';
import { roomVersions } from '@rookery/events';
import { Access, stable, Who } from '@rookery/http';
import { Config, type Requester } from '@rookery/platform';
import { PasswordService } from '@rookery/users';

/** Says what this server lets its users do. */
@Controller()
export class CapabilitiesController {
  constructor(
    private readonly config: Config,
    private readonly passwords: PasswordService,
  ) {}

  /** GET /_matrix/client/v3/capabilities */
  @Get(stable('/capabilities'))
  @Access({ auth: 'required', guests: true, anyProcess: true })
  capabilities(@Who() requester: Requester): object {
    const { config } = this;
    const displayName = config.get('enable_set_displayname');
    const avatarUrl = config.get('enable_set_avatar_url');
    const disallowed = [...(displayName ? [] : ['displayname']), ...(avatarUrl ? [] : ['avatar_url'])];
    const profileFields = { enabled: true, ...(disallowed.length > 0 ? { disallowed } : {}) };
    return {
      capabilities: {
        'm.room_versions': {
          default: config.get('default_room_version'),
          available: Object.fromEntries(roomVersions.map((version) => [version, 'stable'])),
        },
        'm.change_password': { enabled: this.passwords.mayBeChanged },
        'm.set_displayname': { enabled: displayName },
        'm.set_avatar_url': { enabled: avatarUrl },
        'm.3pid_changes': { enabled: config.get('enable_3pid_changes') },
        'm.get_login_token': { enabled: config.get('login_via_existing_session.enabled') },
        'm.forget_forced_upon_leave': { enabled: config.get('forget_rooms_on_leave') },
        ...(requester.isAdmin ? { 'm.account_moderation': { suspend: true, lock: true } } : {}),
        'org.matrix.msc4140.delayed_events': this.#delayedEvents(),
        ...(config.get('experimental_features.msc3720_enabled')
          ? { 'org.matrix.msc3720.account_status': { enabled: true } }
          : {}),
        ...this.#experimental(),
        'm.profile_fields': profileFields,
        ...(config.get('experimental_features.msc4133_enabled')
          ? { 'uk.tcpip.msc4133.profile_fields': profileFields }
          : {}),
      },
    };
  }

  /** What is not specified yet and switched on. */
  #experimental(): Record<string, object> {
    const { config } = this;
    return {
      ...(config.get('experimental_features.msc3664_enabled') && {
        'im.nheko.msc3664.related_event_match': { enabled: true },
      }),
      ...(config.get('experimental_features.msc4267_enabled') && {
        'org.matrix.msc4267.forget_forced_upon_leave': { enabled: config.get('forget_rooms_on_leave') },
      }),
      ...(config.get('experimental_features.msc4452_enabled') && {
        'io.element.msc4452.preview_url': { enabled: config.get('url_preview_enabled') },
      }),
    };
  }

  /** MSC4140: how long and how many; 0 of either means that events cannot be delayed. */
  #delayedEvents(): object {
    return {
      max_delay_ms: this.config.get('max_event_delay_duration') ?? 0,
      max_scheduled: this.config.get('experimental_features.msc4140_max_delayed_events_per_user'),
    };
  }
}
