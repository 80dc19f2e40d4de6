import { Body, Controller, Get, HttpCode, Post } from '@nestjs/common';
import { ForAdmins, ForUsers, MatrixApi, Requester } from '@rookery/nest';
import type { ModuleRequester } from '@rookery/module-api';
import { IsString, Matches } from 'class-validator';
import { WelcomeService } from './welcome.service.js';

/** Body of a request to invite the sender of welcomes. */
class Invitation {
  @IsString()
  @Matches(/^!/, { message: 'room_id must be the id of a room' })
  room_id!: string;
}

/** Below `/_synapse/client/welcome`. */
@Controller()
export class WelcomeController {
  constructor(
    private readonly welcomes: WelcomeService,
    private readonly api: MatrixApi,
  ) {}

  /** GET …/greeted: how many were greeted, for administrators. */
  @Get('greeted')
  @ForAdmins()
  async greeted(): Promise<object> {
    return { total: await this.welcomes.count() };
  }

  /** POST …/greet: whether the user who asks may expect to be greeted there. */
  @Post('greet')
  @HttpCode(200)
  @ForUsers()
  async greet(@Body() { room_id: roomId }: Invitation, @Requester() requester: ModuleRequester): Promise<object> {
    const [member] = await this.api.getRoomState(roomId, [['m.room.member', requester.userId]]);
    return { joined: member?.content['membership'] === 'join' };
  }
}
