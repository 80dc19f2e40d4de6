import { Controller, Param, Post } from '@nestjs/common';
import { Access, JsonBody, stable, Who } from '@rookery/http';
import type { Requester } from '@rookery/platform';
import { LeaveService } from '../membership/leave.service.js';
import { RoomForgetting } from '../membership/room-forgetting.js';
import { bodyLimitBytes, type ReasonBody, reasonSchema } from './membership-bodies.js';

/** Leaving rooms, and forgetting that one was there. */
@Controller()
export class LeaveController {
  constructor(
    private readonly leaves: LeaveService,
    private readonly forgetting: RoomForgetting,
  ) {}

  /** POST /_matrix/client/v3/rooms/{roomId}/leave */
  @Post(stable('/rooms/:roomId/leave'))
  @Access({ auth: 'required', guests: true, bodyLimitBytes })
  async leave(
    @Who() requester: Requester,
    @Param('roomId') roomId: string,
    @JsonBody(reasonSchema, { optional: true }) body: ReasonBody,
  ): Promise<object> {
    await this.leaves.leave(requester, roomId, { reason: body.reason });
    return {};
  }

  /** POST /_matrix/client/v3/rooms/{roomId}/forget */
  @Post(stable('/rooms/:roomId/forget'))
  @Access({ auth: 'required', guests: true, bodyLimitBytes })
  async forget(@Who() requester: Requester, @Param('roomId') roomId: string): Promise<object> {
    await this.forgetting.forget(requester, roomId);
    return {};
  }
}
